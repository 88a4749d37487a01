"""The progress of a run, from its `live.json`: the window of the current stage so far."""

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

LINE_EVERY = 10.0  # seconds, if the output is no terminal
SERIOUS = ("invalid", "warn")  # severities of findings that are shown


Show = Callable[[float | None, str], None]
"""Show the share of the run that is over, from 0 to 1 or `None` if it is not known, and a line about the run."""


def sentence(live: LiveDocument, stage: Stage | None) -> str:
    """Describe all requests so far, the live metrics of this stage, and its most severe finding."""
    view = live.stage(stage.index) if stage is not None else None
    if view is None:
        return live.total
    return ", ".join((live.total, *parts_of(view), *filter(None, [findings_text(view, SERIOUS)])))


def where_it_stands(meta: RunMeta, now: int, live: LiveDocument) -> tuple[float | None, str]:
    """Return the share of a run that is over, `None` if it is not known, and a line about the run."""
    stage = stage_at(meta.stages, now)
    if stage is None:
        return 1.0, f"last answers, {sentence(live, meta.stages[-1] if meta.stages else None)}"
    phase = phase_of(stage)
    planned = stage.plan.seconds
    inside = min(1.0, (now - stage.start) / SECOND / planned) if planned else 0.5
    if meta.search is not None:
        return None, f"{stage.label}, {phase}, capacity {meta.search.bracket}, {sentence(live, stage)}"
    if meta.workload.get("by") == "growth":  # the number of stages is not known
        share = min(1.0, now / SECOND / meta.workload["search_seconds"])
        return share, f"{stage.label}, {phase}, {sentence(live, stage)}"
    place = f"stage {stage.index + 1}/{len(meta.plan)}, {stage.label}, {phase}{_time_left(meta, stage, now)}"
    return (stage.index + inside) / len(meta.plan), f"{place}, {sentence(live, stage)}"


def _time_left(meta: RunMeta, stage: Stage, now: int) -> str:
    """Return the time left by the plan, if every stage has a planned time. Stages may take longer."""
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
