"""What is counted of the requests of one process: counts that only grow, by stage, and how processes are added up.

Every request is counted once, as its record is written, so the counts at the end equal those of the records. Chunks are
far more frequent than requests: their gaps are placed in whole nanoseconds, as they are recorded.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from loadtests.harness.exporter.edges import edges_around
from loadtests.harness.exporter.sketches import Sketches
from records.metrics import REQUEST_METRICS, Metric
from records.request import Outcome, RequestRecord
from records.rules import is_failure
from records.slo import RunObjectives
from records.stage import SECOND

METRICS: dict[str, Metric] = {
    metric.objective or metric.name: metric for metric in REQUEST_METRICS if metric.shown.exported
}
ICL = "icl"
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


class Histogram:
    """Counts by bucket, the last one without an upper edge. `total` sums what is finite, in seconds."""

    __slots__ = ("counts", "total")

    def __init__(self, edges: int) -> None:
        self.counts = [0] * (edges + 1)
        self.total = 0.0

    def add(self, other: Histogram) -> None:
        self.counts = [one + more for one, more in zip(self.counts, other.counts, strict=True)]
        self.total += other.total


class Buckets:
    """The edges of each metric: those of the objectives that limit it among them; none where nothing is `exported`."""

    def __init__(self, objectives: RunObjectives, exported: bool = True) -> None:
        self.objectives = objectives
        given = (*objectives.of_all, *(one for each in objectives.of_class.values() for one in each))
        self.edges: dict[str, tuple[float, ...]] = {}
        for name in (*METRICS, ICL) if exported else ():
            self.edges[name] = edges_around(one.limit for one in given if one.metric == name)
        self.nanoseconds = [round(edge * SECOND) for edge in self.edges.get(ICL, ())]
        self.of_requests = [(name, METRICS[name], edges) for name, edges in self.edges.items() if name != ICL]

    def empty(self) -> dict[str, Histogram]:
        return {name: Histogram(len(edges)) for name, edges in self.edges.items()}


@dataclass(slots=True)
class StageCounts:
    """Requests of one stage that have ended; `good` ones met every objective."""

    histograms: dict[str, Histogram]
    sketches: Sketches = field(default_factory=Sketches)
    outcomes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    good: int = 0
    output_tokens: int = 0
    prompt_tokens: int = 0

    def add(self, other: StageCounts) -> None:
        for name, histogram in other.histograms.items():
            self.histograms[name].add(histogram)
        self.sketches.add(other.sketches)
        for outcome, count in other.outcomes.items():
            self.outcomes[outcome] += count
        self.good += other.good
        self.output_tokens += other.output_tokens
        self.prompt_tokens += other.prompt_tokens


class Counts:
    """One process. `scheduled` are the requests that were due."""

    def __init__(self, buckets: Buckets) -> None:
        self.stages: dict[int, StageCounts] = {}
        self.scheduled = 0
        self._buckets = buckets
        self._changed: set[int] = set()

    def request_scheduled(self) -> None:
        self.scheduled += 1

    @property
    def in_flight(self) -> int:
        """Requests that were due and have not ended."""
        return self.scheduled - sum(sum(stage.outcomes.values()) for stage in self.stages.values())

    def request_ended(self, record: RequestRecord) -> None:
        """A failure is infinitely late: it counts beyond every edge of what is judged over attempted requests. Of a
        request that the run's end cut off, what is known counts."""
        stage = self.stage(record.stage)
        self._changed.add(record.stage)
        stage.outcomes[record.outcome] += 1
        stage.sketches.count(record)
        stage.good += self._buckets.objectives.met_by(record)
        stage.output_tokens += record.output_tokens or 0
        stage.prompt_tokens += record.prompt_tokens or 0
        failed = is_failure(record.outcome)
        for name, metric, edges in self._buckets.of_requests:
            histogram = stage.histograms[name]
            if failed and metric.population == "attempted":
                histogram.counts[-1] += 1
            elif (value := metric.of(record)) is not None:
                histogram.counts[bisect_left(edges, value)] += 1
                histogram.total += value
        if record.icl and self._buckets.nanoseconds:
            self._place_gaps(stage.histograms[ICL], sorted(record.icl))

    def _place_gaps(self, histogram: Histogram, gaps: list[int]) -> None:
        """`gaps` ascend: the search is for the end of each bucket, of which an answer needs few, not for each gap."""
        edges, counts, at = self._buckets.nanoseconds, histogram.counts, 0
        while at < len(gaps):
            bucket = bisect_left(edges, gaps[at])
            end = bisect_right(gaps, edges[bucket], at) if bucket < len(edges) else len(gaps)
            counts[bucket] += end - at
            at = end
        histogram.total += sum(gaps) / SECOND

    def message(self) -> dict[str, Any]:
        """For the master: the stages that have changed since the last call, each from its beginning."""
        changed, self._changed = self._changed, set()
        stages = [
            [
                index,
                list(one.outcomes.values()),
                [one.good, one.output_tokens, one.prompt_tokens],
                [[each.total, each.counts] for each in one.histograms.values()],
                one.sketches.message(),
            ]
            for index, one in ((index, self.stages[index]) for index in changed)
        ]
        return {"scheduled": self.scheduled, "stages": stages}

    def take(self, message: Mapping[str, Any]) -> None:
        """The other side of `message`."""
        self.scheduled = message["scheduled"]
        for index, outcomes, (good, output, prompt), histograms, sketches in message["stages"]:
            stage = self.stages[index] = StageCounts(self._buckets.empty())
            stage.outcomes = dict(zip(OUTCOMES, outcomes, strict=True))
            stage.sketches = Sketches.taken(sketches)
            stage.good, stage.output_tokens, stage.prompt_tokens = good, output, prompt
            for histogram, (total, counts) in zip(stage.histograms.values(), histograms, strict=True):
                histogram.total, histogram.counts = total, list(counts)

    def stage(self, index: int) -> StageCounts:
        stage = self.stages.get(index)
        if stage is None:
            stage = self.stages[index] = StageCounts(self._buckets.empty())
        return stage


def together(processes: Iterable[Counts], buckets: Buckets) -> Counts:
    """All processes as one."""
    total = Counts(buckets)
    for process in processes:
        total.scheduled += process.scheduled
        for index, one in process.stages.items():
            total.stage(index).add(one)
    return total
