"""The steady windows that a run reached, and what flowed through them.

warm-up | steady window | hold, until the window's requests are answered
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from enginebench.analysis.arrays import Floats
from enginebench.analysis.data.chunks import chunks_of
from enginebench.analysis.data.flow import Arrivals, InFlight, Instants
from enginebench.analysis.data.gaps import GapCounter
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


class Flows:
    """Tokens and requests in flight of a whole run at the given `instants`, and the gaps between chunks by window
    index."""

    def __init__(self, run: RunData, windows: Sequence[Window], instants: Instants) -> None:
        self._instants = np.unique(np.concatenate([instants, *(window.instants for window in windows)]))
        self._arrived = Arrivals(self._instants)
        longest = run.requests.select((pl.col("t_end") - pl.col("t_first")).max()).item() or 0
        spans = [(window.start, window.end) for window in windows]
        gaps = GapCounter(spans, longest)
        for part in chunks_of(run.table):
            self._arrived.add(part)
            gaps.count(part)
        if not gaps.settled():
            for part in chunks_of(run.table):
                gaps.locate(part)
        self.gaps = {window.key.index: pooled for window, pooled in zip(windows, gaps.pooled, strict=True)}
        sent = run.requests.select("t_send", "t_end").drop_nulls()
        self.in_flight = InFlight(sent["t_send"].to_numpy(), sent["t_end"].to_numpy())

    def tokens(self, instants: Instants) -> Floats:
        """Return the tokens that arrived between successive instants."""
        return np.diff(self._arrived.tokens[np.searchsorted(self._instants, instants)])

    def chunks(self, instants: Instants) -> Floats:
        """Return the streamed chunks that arrived between successive instants."""
        return np.diff(self._arrived.chunks[np.searchsorted(self._instants, instants)])

    def tokens_of(self, span: Increase) -> float:
        """Return the tokens that arrived while a counter of the server was observed."""
        return float(self.tokens(np.array([span.start, span.end], dtype=np.int64))[0])

    def uncounted(self, start: int, end: int) -> int:
        """Return the chunks that arrived with an unknown number of tokens."""
        before, after = self._arrived.uncounted[np.searchsorted(self._instants, [start, end])]
        return round(float(after - before))
