"""The progress of a run, read from what it publishes (`live.json`): its current stage's window so far."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from enginebench.records.run import RunMeta
from enginebench.records.stage import SECOND, Stage, stage_at
from loadtests.harness.live.document import LiveDocument
from loadtests.harness.live.text import findings_text, parts_of, phase_of

LINE_EVERY = 10.0  # seconds, where there is no terminal to draw on
SERIOUS = ("invalid", "warn")  # findings that are worth a place in one line


class Show(Protocol):
    """Show progress: `share` from 0 to 1, or `None` while it is not known; below it, in a terminal, a `chart`."""

    def __call__(self, share: float | None, text: str, chart: Sequence[str] = ()) -> None: ...


def sentence(live: LiveDocument, stage: Stage | None) -> str:
    """All requests so far, what is declared to be shown live of this stage, and its gravest finding."""
    view = live.stage(stage.index) if stage is not None else None
    if view is None:
        return live.total
    return ", ".join((live.total, *parts_of(view), *filter(None, [findings_text(view, SERIOUS)])))


def where_it_stands(meta: RunMeta, now: int, live: LiveDocument) -> tuple[float | None, str]:
    """How far a run is, from 0 to 1 (`None` where that is not known), and a line about it."""
    stage = stage_at(meta.stages, now)
    if stage is None:
        return 1.0, f"last answers, {sentence(live, meta.stages[-1] if meta.stages else None)}"
    phase = phase_of(stage)
    planned = stage.plan.seconds
    inside = min(1.0, (now - stage.start) / SECOND / planned) if planned else 0.5
    if meta.search is not None:
        return None, f"{stage.label}, {phase}, capacity {meta.search.bracket}, {sentence(live, stage)}"
    if meta.workload.get("by") == "growth":  # the stages follow from one another
        share = min(1.0, now / SECOND / meta.workload["search_seconds"])
        return share, f"{stage.label}, {phase}, {sentence(live, stage)}"
    place = f"stage {stage.index + 1}/{len(meta.plan)}, {stage.label}, {phase}{_time_left(meta, stage, now)}"
    return (stage.index + inside) / len(meta.plan), f"{place}, {sentence(live, stage)}"


def _time_left(meta: RunMeta, stage: Stage, now: int) -> str:
    """Return the planned rest of the run, if every stage has a planned time; what prolongs a stage comes on top."""
    planned = [plan.seconds for plan in meta.plan[stage.index :]]
    if None in planned:
        return ""
    left = sum(filter(None, planned)) - (now - stage.start) / SECOND
    return f", {left:.0f} s left" if left > 0 else ""


@contextmanager
def progress(console: Console, title: str) -> Iterator[Show]:
    """A bar, a line and a chart in a terminal; elsewhere a line every ten seconds."""
    if console.is_terminal:
        bar = Progress(
            TextColumn("{task.description}", style="bold", markup=False),
            BarColumn(bar_width=40),
            console=console,
        )
        task = bar.add_task(title, total=None)

        with Live(bar, console=console, transient=True) as live:

            def draw(share: float | None, text: str, chart: Sequence[str] = ()) -> None:
                bar.update(task, total=None if share is None else 1.0, completed=share or 0.0)
                lines = (Text(line, no_wrap=True, overflow="ellipsis") for line in (text, *chart))
                live.update(Group(bar, *lines))

            yield draw
    else:
        said_at = -LINE_EVERY

        def say(share: float | None, text: str, chart: Sequence[str] = ()) -> None:
            nonlocal said_at
            if time.monotonic() - said_at >= LINE_EVERY:
                said_at = time.monotonic()
                console.print(f"{title}: {text}", soft_wrap=True)

        yield say
