"""Counts of one process's requests, over the run and in the window of each stage; processes are added up.

A request is counted once, two seconds after it ended, because a process hears of a window's boundary after it was
crossed. So at the end of a run the counts equal those of the records.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from itertools import accumulate
from typing import Any, get_args

import msgspec

from enginebench.records.formula import reader
from enginebench.records.metrics import FIRST_TOKENS, SEEN_TOKENS
from enginebench.records.request import CENSORED, Outcome, RequestRecord
from enginebench.records.stage import SECOND, Nanoseconds, Stage
from loadtests.harness.live.buckets import CountedMetrics
from loadtests.harness.live.histogram import Histogram

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
SETTLED: Nanoseconds = 2 * SECOND  # delay after which the window of an instant is known
OPEN: Nanoseconds = 2**62  # end of the current window
AT_A_TIME = 8  # requests that are counted before the event loop has its turn: about half a millisecond

seen_tokens, first_tokens = reader(SEEN_TOKENS), reader(FIRST_TOKENS)


class Counts(msgspec.Struct):
    """Requests that have ended: in the whole run, or those scheduled in the window of a stage."""

    histograms: dict[str, Histogram] = {}
    outcomes: dict[str, int] = msgspec.field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    good: int = 0  # requests that met every objective
    evaluated: int = 0  # requests that are known to be good or not
    retried: int = 0  # requests that repeat a failed one
    met_and_missed: dict[str, list[int]] = {}  # two counts for each objective
    output_tokens: int = 0
    arrived: float = 0.0  # tokens that arrived in the stage's window, of any request
    uncounted: int = 0  # requests with an unknown number of tokens in the window

    def histogram(self, metric: str) -> Histogram:
        return self.histograms.setdefault(metric, Histogram())

    def add(self, other: Counts) -> None:
        for name, histogram in other.histograms.items():
            self.histogram(name).add(histogram)
        for outcome, count in other.outcomes.items():
            self.outcomes[outcome] += count
        self.good += other.good
        self.evaluated += other.evaluated
        self.retried += other.retried
        for objective, (met, missed) in other.met_and_missed.items():
            own_met, own_missed = self.met_and_missed.get(objective, (0, 0))
            self.met_and_missed[objective] = [own_met + met, own_missed + missed]
        self.output_tokens += other.output_tokens
        self.arrived += other.arrived
        self.uncounted += other.uncounted


class CountsMessage(msgspec.Struct, array_like=True):
    """A message from a process to Locust's master, with all counts of each stage that has changed."""

    scheduled: int
    ended: int
    run: Counts
    stages: dict[int, Counts]


class LiveCounts:
    """The counts of one process, with the requests that were `scheduled` and those that `ended`, counted yet or not."""

    def __init__(self, metrics: CountedMetrics) -> None:
        self.scheduled = self.ended = 0
        self.run = Counts()
        self.stages: dict[int, Counts] = {}
        self._metrics = metrics
        self._windows: dict[int, tuple[Nanoseconds, Nanoseconds]] = {}  # by the stage's index, ascending
        self._unsettled: deque[RequestRecord] = deque()
        self._changed: set[int] = set()

    @property
    def in_flight(self) -> int:
        return self.scheduled - self.ended

    def enter(self, stage: Stage) -> None:
        """Take a boundary of a stage."""
        if stage.steady_start is not None:
            window, end = stage.plan.window, stage.steady_end
            if end is None:
                end = stage.steady_start + round(window.amount * SECOND) if window.unit == "seconds" else OPEN
            self._windows[stage.index] = (stage.steady_start, end)

    def request_scheduled(self) -> None:
        self.scheduled += 1

    def request_ended(self, record: RequestRecord) -> None:
        self.ended += 1
        self._unsettled.append(record)

    def settle(self, now: Nanoseconds) -> bool:
        """Count some of the requests that ended long enough ago, and return whether there may be more."""
        for _ in range(AT_A_TIME):
            if not self._unsettled or self._unsettled[0].t_end > now - SETTLED:
                return False
            self._count(self._unsettled.popleft())
        return True

    def settle_all(self) -> None:
        """Count all requests that have ended, once every boundary is known."""
        while self._unsettled:
            self._count(self._unsettled.popleft())

    def _count(self, record: RequestRecord) -> None:
        counted = [self.run]
        for index, (start, end) in reversed(self._windows.items()):
            if end <= record.t_sched:
                break
            if start <= record.t_end:
                stage = self.stages.setdefault(index, Counts())
                self._changed.add(index)
                if start <= record.t_sched:
                    counted.append(stage)
                _count_tokens(stage, record, start, end)
        met = self._metrics.objectives.met_by(record)
        for counts in counted:
            counts.outcomes[record.outcome] += 1
            counts.output_tokens += record.output_tokens or 0
            counts.evaluated += met is not None
            counts.good += met is True
            counts.retried += record.attempt > 0
        for objective in self._metrics.objectives.for_all:
            if (met := objective.met_by(record)) is not None:
                for counts in counted:
                    counts.met_and_missed.setdefault(str(objective), [0, 0])[not met] += 1
        for name, bucketed in self._metrics.items():
            value = bucketed.value(record)
            if value is not None:
                bucket = bisect_left(bucketed.edges, value)
                is_bound = record.outcome in CENSORED and bucketed.is_bound(record) == 1
                for counts in counted:
                    counts.histogram(name).put(bucket, value, is_bound)

    def changes(self) -> set[int]:
        """Return the stages that have changed since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def message(self) -> dict[str, Any]:
        """Return the message to the master, with the changes since the last call."""
        stages = {index: self.stages[index] for index in self.changes()}
        return {"counts": msgspec.msgpack.encode(CountsMessage(self.scheduled, self.ended, self.run, stages))}

    def take(self, message: Mapping[str, Any]) -> set[int]:
        """Take the `message` of another process, and return the stages that have changed."""
        taken = msgspec.msgpack.decode(message["counts"], type=CountsMessage)
        self.scheduled, self.ended, self.run = taken.scheduled, taken.ended, taken.run
        self.stages |= taken.stages
        return set(taken.stages)


def _count_tokens(stage: Counts, record: RequestRecord, start: Nanoseconds, end: Nanoseconds) -> None:
    """Add the tokens that arrived within [start, end): those of the first chunk, and equal parts of the others."""
    tokens = seen_tokens(record)
    if tokens is None:
        stage.uncounted += record.outcome == "ok" or record.chunks > 0
        return
    if record.t_last is None:
        return
    begin = record.t_last if record.t_first is None else record.t_first
    if start <= begin and record.t_last < end:
        stage.arrived += tokens
        return
    arrivals = list(accumulate(record.icl, initial=begin))
    first = min(first_tokens(record) or 0.0, tokens) if record.icl else tokens
    later = (tokens - first) / max(1, len(record.icl))
    before, within = bisect_left(arrivals, start), bisect_left(arrivals, end)
    stage.arrived += later * (within - before)
    if before == 0 < within:
        stage.arrived += first - later
