"""What one process counts of its requests, by stage and phase: counts that only grow, and that processes add up.

Each request is counted once, a moment after its record was written (`windows.py` says why), so that at the end of a run
the counts equal what is computed from the records. Chunks are far more frequent than requests: their gaps are placed in
whole nanoseconds, as they are recorded.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from math import inf
from typing import Any, Literal, get_args

from loadtests.harness.live.edges import GAP_GROWTH, GROWTH, edges_around, with_grid
from loadtests.harness.live.sketch import Sketch
from loadtests.harness.live.tallies import Sum, of_flow, of_request
from loadtests.harness.live.windows import SETTLED, Windows
from records.formula import NOTHING, Formula, readers
from records.metrics import BY_NAME, ICL, REQUEST_METRICS, Metric
from records.request import Outcome, RequestRecord
from records.rules import attempted, censored, is_failure
from records.slo import RunObjectives
from records.stage import SECOND, Nanoseconds, Stage
from records.telemetry import TelemetrySample

Phase = Literal["window", "outside"]
PHASES: tuple[Phase, ...] = get_args(Phase)
"""A request was scheduled in its stage's steady window, or in warm-up or hold."""
METRICS: tuple[Metric, ...] = (*REQUEST_METRICS, ICL)
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
GAUGES = ("client_cpu", "loop_lag", "run_delay")  # of a telemetry sample: the load generator's own
AT_A_TIME = 8  # settled requests that are counted when one ends: they never pile up, and never hold up the loop


class Scales:
    """The buckets of each metric: those of the objectives that limit it among them."""

    def __init__(self, objectives: RunObjectives) -> None:
        self.objectives = objectives.first_tier
        given = (*objectives.of_all, *(one for each in objectives.of_class.values() for one in each))
        limits = {metric.name: [one.limit for one in given if one.column == metric.name] for metric in METRICS}
        self.exported = {name: edges_around(own) for name, own in limits.items()}
        growths = {ICL.name: GAP_GROWTH}  # of which an answer has a hundred
        self.edges = {name: with_grid(exported, growths.get(name, GROWTH)) for name, exported in self.exported.items()}
        self.of_requests = [(metric.name, self.edges[metric.name]) for metric in REQUEST_METRICS]
        self.values = readers(metric.formula for metric in REQUEST_METRICS)
        # Of a request that did not end well: its value in the metric's population, and whether it is a lower bound.
        self.others = readers(_of_others(metric) for metric in REQUEST_METRICS)
        self.bounds = readers(censored(metric.formula) for metric in REQUEST_METRICS)
        self.nanoseconds = [round(edge * SECOND) for edge in self.edges[ICL.name]]


def _of_others(metric: Metric) -> Formula:
    if metric.population == "answered":
        return NOTHING
    return attempted(metric.formula) if metric.population == "attempted" else metric.formula


@dataclass(slots=True)
class StageCounts:
    """Requests of one stage and phase that have ended. `sums` holds how many values of a name there were, and their sum
    (`tallies.py`); `failures` how often what failed; `gauges` how many samples of one process, their sum and peak.

    `good` ones met every objective, `judged` ones can be said to have met them or not.
    """

    sketches: dict[str, Sketch] = field(default_factory=lambda: {metric.name: Sketch() for metric in METRICS})
    outcomes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    sums: dict[str, list[float]] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    gauges: dict[str, tuple[int, float, float]] = field(default_factory=dict)
    good: int = 0
    judged: int = 0
    output_tokens: int = 0
    prompt_tokens: int = 0

    @property
    def requests(self) -> int:
        return sum(self.outcomes.values())

    def sum(self, name: str) -> float:
        return self.sums.get(name, (0, 0.0))[1]

    def mean(self, name: str) -> float | None:
        n, total = self.sums.get(name, (0, 0.0))
        return total / n if n else None

    def tally(self, sums: Iterable[Sum]) -> None:
        for name, value in sums:
            if value is not None:
                known = self.sums.get(name)
                if known is None:
                    self.sums[name] = [1, value]
                else:
                    known[0] += 1
                    known[1] += value

    def sampled(self, name: str, value: float) -> None:
        n, total, peak = self.gauges.get(name, (0, 0.0, 0.0))
        self.gauges[name] = (n + 1, total + value, max(peak, value))

    def add(self, other: StageCounts) -> None:
        for name, sketch in other.sketches.items():
            self.sketches[name].add(sketch)
        for outcome, count in other.outcomes.items():
            self.outcomes[outcome] += count
        for name, sums in other.sums.items():
            self.sums[name] = [a + b for a, b in zip(self.sums.get(name, (0, 0.0)), sums, strict=True)]
        self.failures.update(other.failures)
        for name, gauge in other.gauges.items():  # that of the process with the largest mean
            known = self.gauges.get(name)
            if known is None or gauge[1] / gauge[0] > known[1] / known[0]:
                self.gauges[name] = gauge
        self.good += other.good
        self.judged += other.judged
        self.output_tokens += other.output_tokens
        self.prompt_tokens += other.prompt_tokens

    def message(self) -> list[Any]:
        """`StageCounts.taken` is the other side."""
        return [
            [sketch.message() for sketch in self.sketches.values()],
            list(self.outcomes.values()),
            self.sums,
            dict(self.failures),
            self.gauges,
            [self.good, self.judged, self.output_tokens, self.prompt_tokens],
        ]

    @classmethod
    def taken(cls, message: Sequence[Any]) -> StageCounts:
        sketches, outcomes, sums, failures, gauges, rest = message
        return cls(
            {metric.name: Sketch.taken(one) for metric, one in zip(METRICS, sketches, strict=True)},
            dict(zip(OUTCOMES, outcomes, strict=True)),
            {name: list(both) for name, both in sums.items()},
            Counter(failures),
            {name: (n, total, peak) for name, (n, total, peak) in gauges.items()},
            *rest,
        )


Key = tuple[int, Phase]


class Counts:
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
        self.settle(record.t_end, AT_A_TIME)

    def sampled(self, sample: TelemetrySample) -> None:
        """Of the load generator's own state."""
        if (index := self._windows.of(sample.t)) is not None:
            for name in GAUGES:
                if (value := getattr(sample, name)) is not None:
                    self._stage(index, "window").sampled(name, value)

    def settle(self, now: Nanoseconds, most: int) -> bool:
        """Count requests that ended long enough ago, at most so many; whether there may be more."""
        unsettled = self._unsettled
        for _ in range(most):
            if not unsettled or unsettled[0].t_end > now - SETTLED:
                return False
            self._count(unsettled.popleft())
        return True

    def close(self) -> None:
        """The run is over: every boundary is known."""
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
            stage.failures[f"{record.outcome}: {record.detail}" if record.detail else record.outcome] += 1
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
        stages = [[*key, self.stages[key].message()] for key in sorted(self.changes())]
        return {"scheduled": self.scheduled, "ended": list(self.ended.values()), "stages": stages}

    def take(self, message: Mapping[str, Any]) -> set[Key]:
        """The other side of `message`; gives what has changed."""
        self.scheduled, self.ended = message["scheduled"], dict(zip(OUTCOMES, message["ended"], strict=True))
        for index, phase, counts in message["stages"]:
            self.stages[index, phase] = StageCounts.taken(counts)
        return {(index, phase) for index, phase, _ in message["stages"]}
