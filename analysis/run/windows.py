"""The steady windows that a run reached, and what flowed through them.

warm-up | steady window, in BATCHES equal parts | cool-down
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from analysis.run.flow import Floats, InFlight, Instants, arrivals_by
from analysis.run.load import Run
from analysis.run.telemetry import Increase
from analysis.verdict.statistics import BATCHES
from records.record import Stage

SECOND = 1_000_000_000  # nanoseconds
GRACE = (0.05, 1.5)  # share of a window, and seconds: so near its planned end, a stopped run counts as complete
LEAST = (0.1, 5.0)  # share of a window, and seconds: with less than the smaller of them, a step was not measured


@dataclass(frozen=True, slots=True)
class Window:
    """A stage's steady window as far as the run got, and the instants at which its flows must be known."""

    index: int
    users: int
    start: int  # nanoseconds since the run's start
    end: int
    complete: bool  # False: the run was stopped inside it
    generated: Increase | None  # tokens by the server's own count
    energy: Increase | None  # joules

    @property
    def seconds(self) -> float:
        return (self.end - self.start) / SECOND

    @property
    def batches(self) -> Instants:
        """`BATCHES + 1` edges."""
        length = self.end - self.start
        return np.array([self.start + length * k // BATCHES for k in range(BATCHES + 1)], dtype=np.int64)

    @property
    def instants(self) -> Instants:
        spans = [(span.start, span.end) for span in (self.generated, self.energy) if span is not None]
        return np.concatenate((self.batches, np.array(spans, dtype=np.int64).ravel()))

    def scheduled(self, requests: pl.DataFrame) -> pl.DataFrame:
        """The requests that the window's latencies belong to."""
        return requests.filter(pl.col("t_sched").is_between(self.start, self.end, closed="left"))


def windows_of(run: Run) -> list[Window]:
    """The windows that the run reached. One that was barely begun is no measurement."""
    reached = [_reached(run, stage) for stage in run.meta.stages]
    return [window for window in reached if window is not None]


def _reached(run: Run, stage: Stage) -> Window | None:
    start, planned_end = stage.steady_start, stage.steady_end
    grace, least = (min(share * (planned_end - start), seconds * SECOND) for share, seconds in (GRACE, LEAST))
    complete = run.last >= planned_end - grace
    end = planned_end if complete else run.last
    if end - start < max(least, BATCHES):
        return None
    generated, energy = run.telemetry.increase("generated_tokens", start, end), run.telemetry.energy(start, end)
    return Window(stage.index, stage.users, start, end, complete, generated, energy)


class Flows:
    """Tokens and requests in flight of a whole run, looked up at the instants for which it was made."""

    def __init__(self, run: Run, instants: Instants) -> None:
        self._instants = np.unique(instants)
        self._arrived = arrivals_by(run.table, self._instants)
        sent = run.requests.filter(pl.col("t_send").is_not_null())
        self.in_flight = InFlight(sent["t_send"].to_numpy(), sent["t_end"].to_numpy())

    def tokens(self, instants: Instants) -> Floats:
        """Tokens that arrived between each two successive instants."""
        return np.diff(self._arrived.tokens[np.searchsorted(self._instants, instants)])

    def chunks(self, instants: Instants) -> Floats:
        """Streamed chunks that arrived between each two successive instants."""
        return np.diff(self._arrived.chunks[np.searchsorted(self._instants, instants)])

    def uncounted(self, start: int, end: int) -> int:
        """Chunks that arrived with a number of tokens that nobody knows."""
        before, after = self._arrived.uncounted[np.searchsorted(self._instants, [start, end])]
        return round(float(after - before))
