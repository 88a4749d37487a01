"""The progress of a run, read from what it publishes (`live.json`): its current stage's window so far."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from enginebench.records.run import RunMeta
from enginebench.records.stage import SECOND, Stage, stage_at
from loadtests.harness.live.live_json import LiveDocument
from loadtests.harness.live.live_text import findings_text, parts_of, phase_of

LINE_EVERY = 10.0  # seconds, where there is no terminal to draw on
SERIOUS = ("invalid", "warn")  # findings that are worth a place in one line


Show = Callable[[float | None, str], None]
"""Show the share of the run that is over, from 0 to 1 or `None` if it is not known, and a line about the run."""


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
    """Show a bar and a line in a terminal, and elsewhere a line every ten seconds."""
    if console.is_terminal:
        bar = Progress(
            TextColumn("{task.description}", style="bold", markup=False),
            BarColumn(bar_width=40),
            console=console,
        )
        task = bar.add_task(title, total=None)

        with Live(bar, console=console, transient=True) as live:

            def draw(share: float | None, text: str) -> None:
                bar.update(task, total=None if share is None else 1.0, completed=share or 0.0)
                live.update(Group(bar, Text(text, no_wrap=True, overflow="ellipsis")))

            yield draw
    else:
        printed_at = -LINE_EVERY

        def print_line(share: float | None, text: str) -> None:
            nonlocal printed_at
            if time.monotonic() - printed_at >= LINE_EVERY:
                printed_at = time.monotonic()
                console.print(f"{title}: {text}", soft_wrap=True)

        yield print_line
