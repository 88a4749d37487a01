"""The steady windows that a run reached.

warm-up | steady window | hold, until the window's requests are answered
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from enginebench.analysis.arrays import Instants
from enginebench.analysis.data.run_data import RunData, with_metrics
from enginebench.analysis.data.telemetry import Increase
from enginebench.analysis.stats.intervals import BINS
from enginebench.records.load import Load
from enginebench.records.stage import SECOND, Stage
from enginebench.records.view import StageKey, keys_of

PARTS = 80  # of a window: averages over them show whether its flows were steady
MIN_WINDOW = (0.1, 5.0)  # (share of the planned window, seconds): a stage needs the smaller of them to be measured


@dataclass(frozen=True, slots=True)
class Window:
    """A stage's steady window, as far as the run reached it, and the instants at which its flows are needed."""

    key: StageKey
    stage: Stage
    start: int  # nanoseconds since the run's start
    end: int
    complete: bool  # False: the run was stopped inside it, or lost a process
    generated: Increase | None  # tokens by the server's own count
    energy: Increase | None  # joules

    @property
    def load(self) -> Load:
        return self.stage.load

    @property
    def seconds(self) -> float:
        return (self.end - self.start) / SECOND

    def edges(self, parts: int) -> Instants:
        """Return the edges of equal parts of the window."""
        length = self.end - self.start
        return np.array([self.start + length * k // parts for k in range(parts + 1)], dtype=np.int64)

    @property
    def bins(self) -> Instants:
        """Return the edges of the parts that give the interval of a rate."""
        return self.edges(BINS)

    @property
    def parts(self) -> Instants:
        """Return the edges of the parts that show whether the window was steady."""
        return self.edges(PARTS)

    @property
    def instants(self) -> Instants:
        spans = [(span.start, span.end) for span in (self.generated, self.energy) if span is not None]
        edges = (self.bins, self.parts, self.edges(10))
        return np.concatenate((*edges, np.array(spans, dtype=np.int64).ravel()))

    def scheduled(self, requests: pl.DataFrame) -> pl.DataFrame:
        """Select the requests due in the window from all in the order of `t_sched`, and add their metrics."""
        first, last = (requests["t_sched"].search_sorted(instant, side="left") for instant in (self.start, self.end))
        return with_metrics(requests[first:last])


def windows_of(run: RunData) -> list[Window]:
    """Return the windows that the run reached, except those that had barely begun. If a load was first measured
    briefly, its longest window counts."""
    keys = keys_of(run.meta.plan)
    reached = [_reached(run, stage, keys[stage.index]) for stage in run.meta.stages]
    longest: dict[str, Window] = {}
    for window in filter(None, reached):
        previous = longest.get(window.key.label)
        if previous is None or window.seconds >= previous.seconds:
            longest[window.key.label] = window
    return sorted(longest.values(), key=lambda window: window.key.index)


def _reached(run: RunData, stage: Stage, key: StageKey) -> Window | None:
    """Return a window that ends at its recorded end, at the end of the run, or at the last trace of a lost process."""
    start, planned = stage.steady_start, stage.plan.window
    if start is None:
        return None
    length = round(planned.amount * SECOND) if planned.unit == "seconds" else None
    due = stage.steady_end if stage.steady_end is not None or length is None else start + length
    traces = [trace for trace in run.killed.values() if trace >= start]
    if stage.steady_end is None:
        traces.append(run.last if stage.end is None else stage.end)
    complete = due is not None and all(trace >= due for trace in traces)
    end = due if complete and due is not None else min(traces)
    least = MIN_WINDOW[1] * SECOND if length is None else min(MIN_WINDOW[0] * length, MIN_WINDOW[1] * SECOND)
    if end - start < max(least if not complete else 0, BINS):
        return None
    generated, energy = run.telemetry.increase("generated_tokens", start, end), run.telemetry.energy(start, end)
    return Window(key, stage, start, end, complete, generated, energy)
