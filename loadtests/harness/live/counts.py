"""What one process counts of its requests, over the run and in the window of each stage; processes add up.

A request is counted once, a moment after its record was written: a process learns of a window's boundary a
moment after it was crossed. So at the end of a run the counts equal what is computed from the records.
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
from enginebench.records.request import Outcome, RequestRecord
from enginebench.records.stage import SECOND, Nanoseconds, Stage
from loadtests.harness.live.buckets import CountedMetrics
from loadtests.harness.live.histogram import Histogram

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
SETTLED: Nanoseconds = 2 * SECOND  # after which it is known in which window an instant lies
OPEN: Nanoseconds = 2**62  # end of a window that has none yet
AT_A_TIME = 8  # requests that are counted before the event loop has its turn: about half a millisecond

seen_tokens, first_tokens = reader(SEEN_TOKENS), reader(FIRST_TOKENS)


class Counts(msgspec.Struct):
    """Requests that have ended, and the `output_tokens` of theirs. Of `judged` ones it is known whether they met every
    objective, `good` ones did; `kept` has how many met and missed each objective of the first tier.

    Of a stage they are the requests scheduled in its window. `arrived` are the tokens that came within it, whichever
    request they belong to; `uncounted` requests brought an unknown number of them.
    """

    histograms: dict[str, Histogram] = {}
    outcomes: dict[str, int] = msgspec.field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    judged: int = 0
    good: int = 0
    kept: dict[str, list[int]] = {}
    output_tokens: int = 0
    arrived: float = 0.0
    uncounted: int = 0

    def histogram(self, metric: str) -> Histogram:
        return self.histograms.setdefault(metric, Histogram())

    def add(self, other: Counts) -> None:
        for name, histogram in other.histograms.items():
            self.histogram(name).add(histogram)
        for outcome, count in other.outcomes.items():
            self.outcomes[outcome] += count
        self.judged += other.judged
        self.good += other.good
        for objective, counts in other.kept.items():
            self.kept[objective] = [a + b for a, b in zip(self.kept.get(objective, (0, 0)), counts, strict=True)]
        self.output_tokens += other.output_tokens
        self.arrived += other.arrived
        self.uncounted += other.uncounted


class CountsMessage(msgspec.Struct, array_like=True):
    """A message from a process to Locust's master: the stages that have changed, each from its beginning."""

    scheduled: int
    ended: int
    run: Counts
    stages: dict[int, Counts]


class LiveCounts:
    """The counts of one process. `scheduled` requests were due, `ended` ones have ended, counted yet or not."""

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
        """A boundary of a stage has become known."""
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
        """Count some of the requests that ended long enough ago; whether there may be more."""
        for _ in range(AT_A_TIME):
            if not self._unsettled or self._unsettled[0].t_end > now - SETTLED:
                return False
            self._count(self._unsettled.popleft())
        return True

    def settle_all(self) -> None:
        """At the end of a stage or of the run, when every boundary is known."""
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
            counts.judged += met is not None
            counts.good += met is True
        for objective in self._metrics.objectives.for_all:
            if (kept := objective.met_by(record)) is not None:
                for counts in counted:
                    counts.kept.setdefault(str(objective), [0, 0])[not kept] += 1
        for name, bucketed in self._metrics.items():
            value = bucketed.value(record)
            if value is not None:
                bucket = bisect_left(bucketed.edges, value)
                is_bound = record.outcome == "cut_off" and bucketed.is_bound(record) == 1
                for counts in counted:
                    counts.histogram(name).put(bucket, value, is_bound)

    def changes(self) -> set[int]:
        """The stages that have changed since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def message(self) -> dict[str, Any]:
        """Return the message to the master: what has changed since the last call."""
        stages = {index: self.stages[index] for index in self.changes()}
        return {"counts": msgspec.msgpack.encode(CountsMessage(self.scheduled, self.ended, self.run, stages))}

    def take(self, message: Mapping[str, Any]) -> set[int]:
        """The other side of `message`: gives the stages that have changed."""
        taken = msgspec.msgpack.decode(message["counts"], type=CountsMessage)
        self.scheduled, self.ended, self.run = taken.scheduled, taken.ended, taken.run
        self.stages |= taken.stages
        return set(taken.stages)


def _count_tokens(stage: Counts, record: RequestRecord, start: Nanoseconds, end: Nanoseconds) -> None:
    """Add the tokens that arrived within [start, end). The first chunk brings its own, the others share the rest."""
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
