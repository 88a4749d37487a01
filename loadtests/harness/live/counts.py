"""What one process counts of its requests, by stage and phase: counts that only grow, and that processes add up.

Each request is counted once, a moment after its record was written (`windows.py` says why), so that at the end of a run
the counts equal what is computed from the records. Chunks are far more frequent than requests: their gaps are placed in
whole nanoseconds, as they are recorded.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import repeat
from math import inf
from typing import Any, Literal, get_args

import msgspec

from enginebench.records.metrics import BY_NAME, ICL
from enginebench.records.request import Outcome, RequestRecord
from enginebench.records.rules import is_failure
from enginebench.records.stage import SECOND, Nanoseconds, Stage
from enginebench.records.telemetry import LOAD_GENERATOR_GAUGES, TelemetrySample
from loadtests.harness.live.scales import Scales
from loadtests.harness.live.sketch import Sketch
from loadtests.harness.live.stage_counts import OUTCOMES, StageCounts
from loadtests.harness.live.tallies import of_flow, of_request
from loadtests.harness.live.windows import SETTLED, Windows

Phase = Literal["window", "outside"]
PHASES: tuple[Phase, ...] = get_args(Phase)
"""A request was scheduled in its stage's steady window, or in warm-up or hold."""
AT_A_TIME = 8  # requests that are counted before the event loop has its turn: about half a millisecond

Key = tuple[int, Phase]


class CountsMessage(msgspec.Struct, array_like=True):
    """From a process to Locust's master."""

    scheduled: int
    ended: dict[Outcome, int]
    stages: list[tuple[int, Phase, StageCounts]]


class LiveCounts:
    """Of one process. `scheduled` are the requests that were due, `ended` those that have ended, by outcome."""

    def __init__(self, scales: Scales) -> None:
        self.stages: dict[Key, StageCounts] = {}
        self.scheduled = 0
        self.ended = dict.fromkeys(OUTCOMES, 0)
        self._scales = scales
        self._windows = Windows()
        self._unsettled: deque[RequestRecord] = deque()
        self._changed: set[Key] = set()

    @property
    def in_flight(self) -> int:
        """Requests that were due and have not ended."""
        return self.scheduled - sum(self.ended.values())

    def enter(self, stage: Stage) -> None:
        """A boundary of a stage has become known."""
        self._windows.enter(stage)

    def request_scheduled(self) -> None:
        self.scheduled += 1

    def request_ended(self, record: RequestRecord) -> None:
        self.ended[record.outcome] += 1
        self._unsettled.append(record)

    def sampled(self, sample: TelemetrySample) -> None:
        """Of the load generator's own state."""
        if (index := self._windows.of(sample.t)) is not None:
            for name in LOAD_GENERATOR_GAUGES:
                if (value := getattr(sample, name)) is not None:
                    self._stage(index, "window").sampled(name, value)

    def settle(self, now: Nanoseconds) -> bool:
        """Count some of the requests that ended long enough ago; whether there may be more."""
        unsettled = self._unsettled
        for _ in range(AT_A_TIME):
            if not unsettled or unsettled[0].t_end > now - SETTLED:
                return False
            self._count(unsettled.popleft())
        return True

    def settle_all(self) -> None:
        """At the end of a stage or of the run, when every boundary is known."""
        while self._unsettled:
            self._count(self._unsettled.popleft())

    def _stage(self, index: int, phase: Phase) -> StageCounts:
        key = (index, phase)
        self._changed.add(key)
        stage = self.stages.get(key)
        if stage is None:
            stage = self.stages[key] = StageCounts()
        return stage

    def _count(self, record: RequestRecord) -> None:
        index = self._windows.of(record.t_sched)
        stage = self._stage(record.stage, "outside") if index is None else self._stage(index, "window")
        stage.outcomes[record.outcome] += 1
        stage.output_tokens += record.output_tokens or 0
        stage.prompt_tokens += record.prompt_tokens or 0
        stage.tally(of_request(record))
        if is_failure(record.outcome):
            stage.failed(record.outcome, record.detail)
        if (good := self._scales.objectives.met_by(record)) is not None:
            stage.judged += 1
            stage.good += good
        self._place(stage, record)
        for other, start, end in self._windows.during(record.t_sched, record.t_end + 1):
            self._stage(other, "window").tally(of_flow(record, start, end))

    def _place(self, stage: StageCounts, record: RequestRecord) -> None:
        """Put each metric of a request into its bucket. A failure is infinitely late in what is judged over attempted
        requests; of a request that the run's end cut off, what is known counts, and else its lower bound."""
        ok = record.outcome == "ok"
        bounds: Iterable[float | None] = repeat(0.0) if ok else self._scales.bounds(record)
        values = (self._scales.values if ok else self._scales.others)(record)
        for (name, edges), value, is_bound in zip(self._scales.of_requests, values, bounds, strict=False):
            if value is None:
                continue
            sketch = stage.sketches[name]
            if value == inf:
                sketch.failed += 1
                continue
            bucket = bisect_left(edges, value)
            if is_bound and BY_NAME[name].population == "attempted":
                sketch.bounds[bucket] = sketch.bounds.get(bucket, 0) + 1
                continue
            sketch.known[bucket] = sketch.known.get(bucket, 0) + 1
            sketch.total += value
            sketch.answered += ok
        if ok and record.icl:
            self._place_gaps(stage.sketches[ICL.name], sorted(record.icl))

    def _place_gaps(self, sketch: Sketch, gaps: list[int]) -> None:
        """`gaps` ascend: the search is for the end of each bucket, of which an answer needs few, not for each gap."""
        edges, counts, at = self._scales.nanoseconds, sketch.known, 0
        while at < len(gaps):
            bucket = bisect_left(edges, gaps[at])
            end = bisect_right(gaps, edges[bucket], at) if bucket < len(edges) else len(gaps)
            counts[bucket] = counts.get(bucket, 0) + end - at
            at = end
        sketch.answered += len(gaps)
        sketch.total += sum(gaps) / SECOND

    def changes(self) -> set[Key]:
        """What has changed since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def message(self) -> dict[str, Any]:
        """For the master: what has changed since the last call, each from its beginning."""
        stages = [(*key, self.stages[key]) for key in sorted(self.changes())]
        return {"counts": msgspec.msgpack.encode(CountsMessage(self.scheduled, self.ended, stages))}

    def take(self, message: Mapping[str, Any]) -> set[Key]:
        """The other side of `message`; gives what has changed."""
        taken = msgspec.msgpack.decode(message["counts"], type=CountsMessage)
        self.scheduled, self.ended = taken.scheduled, taken.ended
        changed = {(index, phase): counts for index, phase, counts in taken.stages}
        self.stages |= changed
        return set(changed)
