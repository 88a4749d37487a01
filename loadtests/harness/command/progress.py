"""The progress of a run, read from its growing records.

These numbers are for watching: they count a whole stage so far, warm-up included. Reports have the measured ones.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from loadtests.harness.exporter.sketches import Sketches, milliseconds
from records.files import Tail
from records.request import RequestRecord
from records.run import RunMeta
from records.slo import RunObjectives
from records.stage import SECOND, Stage, stage_at

RECENT = 5 * SECOND  # tokens and good requests per second are those of the last five
LINE_EVERY = 10.0  # seconds, where there is no terminal to draw on


@dataclass
class Tally:
    """Counts the records of one run as they appear. `objectives` make a request a good one."""

    folder: Path
    objectives: RunObjectives = field(default_factory=RunObjectives)
    stage: int = -1
    requests: int = 0
    failures: int = 0
    cut_off: int = 0
    unsent: int = 0
    _sketches: Sketches = field(default_factory=Sketches)
    _recent: deque[tuple[int, int, bool]] = field(default_factory=deque)  # t_end, tokens, whether it was a good one

    def __post_init__(self) -> None:
        self._records = Tail(self.folder)

    def update(self) -> None:
        """Read the lines that were written since the last call."""
        for line in self._records.read():
            if isinstance(line, RequestRecord):
                self._count(line)

    def _count(self, ended: RequestRecord) -> None:
        if ended.stage > self.stage:  # only the current stage is shown
            self.stage = ended.stage
            self._sketches = Sketches()
        if ended.outcome == "cut_off":
            self.cut_off += 1  # neither a success nor a failure
            return
        if ended.outcome == "unsent":
            self.unsent += 1
            return
        self.requests += 1
        self.failures += ended.outcome != "ok"
        good = self.objectives.met_by(ended)
        if ended.stage == self.stage:
            self._sketches.count(ended)
        self._recent.append((ended.t_end, ended.output_tokens or 0, good))

    def rates(self, now: int) -> tuple[float, float]:
        """Tokens and good requests per second, over the last seconds; `now` in nanoseconds since the run's start."""
        while self._recent and self._recent[0][0] < now - RECENT:
            self._recent.popleft()
        span = min(now, RECENT) / SECOND
        if span <= 1:
            return 0.0, 0.0
        return sum(tokens for _, tokens, _ in self._recent) / span, sum(good for *_, good in self._recent) / span

    def total(self) -> str:
        cut_off = f", {self.cut_off:,} cut off by its end" if self.cut_off else ""
        unsent = f", {self.unsent:,} could not be sent" if self.unsent else ""
        return f"{self.requests:,} requests, {self.failures:,} failed{unsent}{cut_off}"

    def sentence(self, now: int) -> str:
        tokens, goodput = self.rates(now)
        parts = [self.total(), f"{tokens:,.0f} tokens/s"]
        if self.objectives:
            parts.append(f"goodput {goodput:.3g} req/s")
        for title, name in (("TTFT", "ttft_user"), ("TPOT", "tpot")):
            if (middle := self._sketches.percentile(name, 0.5)) is not None:
                high = self._sketches.percentile(name, 0.99)
                parts.append(f"{title} in ms p50 {milliseconds(middle)} p99 {milliseconds(high)}")
        return ", ".join(parts)


class Show(Protocol):
    """Where progress is shown: `share` from 0 to 1, or `None` while it is not known."""

    def __call__(self, share: float | None, text: str) -> None: ...


def where_it_stands(meta: RunMeta, now: int, tally: Tally) -> tuple[float | None, str]:
    """How far a run is, from 0 to 1 (`None` where that is not known), and a line about it."""
    stage = stage_at(meta.stages, now)
    if stage is None:
        return 1.0, f"last answers, {tally.sentence(now)}"
    if stage.steady_start is None:
        phase = "warming up"
    elif stage.steady_end is None:
        phase = "measuring"
    else:
        phase = "waiting for answers"
    planned = stage.plan.seconds
    inside = min(1.0, (now - stage.start) / SECOND / planned) if planned else 0.5
    if meta.search is not None:
        return None, f"{stage.label}, {phase}, {meta.search.sentence}, {tally.sentence(now)}"
    place = f"stage {stage.index + 1}/{len(meta.plan)}, {stage.label}, {phase}{_time_left(meta, stage, now)}"
    return (stage.index + inside) / len(meta.plan), f"{place}, {tally.sentence(now)}"


def _time_left(meta: RunMeta, stage: Stage, now: int) -> str:
    """As planned, where all that is left has a planned time; what prolongs a stage comes on top."""
    planned = [plan.seconds for plan in meta.plan[stage.index :]]
    if None in planned:
        return ""
    left = sum(filter(None, planned)) - (now - stage.start) / SECOND
    return f", {left:.0f} s left" if left > 0 else ""


@contextmanager
def progress(console: Console, title: str) -> Iterator[Show]:
    """A bar in a terminal; elsewhere a line every ten seconds."""
    if console.is_terminal:
        bar = Progress(
            TextColumn("{task.description}", style="bold", markup=False),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[text]}", markup=False),
            console=console,
            transient=True,
        )
        task = bar.add_task(title, total=None, text="")

        def draw(share: float | None, text: str) -> None:
            bar.update(task, total=None if share is None else 1.0, completed=share or 0.0, text=text)

        with bar:
            yield draw
    else:
        said_at = -LINE_EVERY

        def say(share: float | None, text: str) -> None:
            nonlocal said_at
            if time.monotonic() - said_at >= LINE_EVERY:
                said_at = time.monotonic()
                console.print(f"{title}: {text}", soft_wrap=True)

        yield say
