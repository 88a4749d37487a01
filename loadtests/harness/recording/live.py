"""What a run looks like so far, stage by stage: sums that every process keeps, and the planning one adds up.

These numbers are for watching. They count a whole stage, warm-up included, and percentiles come from logarithmic
buckets, within 1 % of the exact ones. What a report says is computed from the records.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from records.metrics import BY_NAME
from records.slo import RunObjectives
from records.stage import SECOND, Stage

GROWTH = math.log(1.02)  # of a bucket: its middle is within 1 % of everything in it
SKETCHED = ("ttft_user", "tpot")
PERCENTILES = {"p50": 0.5, "p99": 0.99}


class Ended(Protocol):
    """The parts of a request's record that are counted; its metrics and objectives read others."""

    @property
    def outcome(self) -> str: ...
    @property
    def output_tokens(self) -> int | None: ...


@dataclass(slots=True)
class LiveStage:
    """Requests of one stage that have ended, `good` ones with every objective met. `buckets` counts values of each
    metric in `SKETCHED` by logarithm."""

    answered: int = 0
    failed: int = 0
    good: int = 0
    tokens: int = 0
    buckets: dict[str, Counter[int]] = field(default_factory=lambda: {name: Counter() for name in SKETCHED})

    def add(self, request: Ended, good: bool) -> None:
        self.tokens += request.output_tokens or 0
        if request.outcome == "cut_off":
            return
        if request.outcome != "ok":
            self.failed += 1
            return
        self.answered += 1
        self.good += good
        for name, counts in self.buckets.items():
            if (value := BY_NAME[name].of(request)) is not None and value > 0:
                counts[round(math.log(value) / GROWTH)] += 1

    def percentile(self, name: str, q: float) -> float | None:
        """Seconds; failed requests count as infinitely long where the metric has a value at all."""
        counts = self.buckets[name]
        if not counts:
            return None
        rank = math.ceil(q * (counts.total() + self.failed))
        for bucket in sorted(counts):
            rank -= counts[bucket]
            if rank <= 0:
                return math.exp(bucket * GROWTH)
        return math.inf


@dataclass(slots=True)
class Live:
    """The stages of one process by index, and how many of its requests are in flight."""

    objectives: RunObjectives = field(default_factory=RunObjectives)
    stages: dict[int, LiveStage] = field(default_factory=dict)
    in_flight: int = 0
    _changed: set[int] = field(default_factory=set)

    def add(self, stage: int, request: Ended) -> bool:
        """Whether it was answered and met every objective."""
        good = self.objectives.met_by(request)
        self.stages.setdefault(stage, LiveStage()).add(request, good)
        self._changed.add(stage)
        return good

    def message(self) -> dict[str, Any]:
        """For the master: the stages that have changed since the last call, from their beginning."""
        changed, self._changed = self._changed, set()
        stages = []
        for index in changed:
            one = self.stages[index]
            buckets = {name: list(counts.items()) for name, counts in one.buckets.items()}
            stages.append([index, one.answered, one.failed, one.good, one.tokens, buckets])
        return {"in_flight": self.in_flight, "stages": stages}

    def take(self, message: Mapping[str, Any]) -> None:
        """The other side of `message`."""
        self.in_flight = message["in_flight"]
        for index, answered, failed, good, tokens, buckets in message["stages"]:
            counted = {name: Counter(dict(pairs)) for name, pairs in buckets.items()}
            self.stages[index] = LiveStage(answered, failed, good, tokens, counted)


def together(processes: Iterable[Live]) -> Live:
    """All processes as one."""
    total = Live()
    for process in processes:
        total.in_flight += process.in_flight
        for index, one in process.stages.items():
            sums = total.stages.setdefault(index, LiveStage())
            sums.answered += one.answered
            sums.failed += one.failed
            sums.good += one.good
            sums.tokens += one.tokens
            for name, counts in one.buckets.items():
                sums.buckets[name].update(counts)
    return total


COLUMNS = {
    "stage": "Stage",
    "load": "Load",
    "answered": "Answers",
    "failed": "Failed",
    "ttft_p50": "TTFT p50 (ms)",
    "ttft_p99": "TTFT p99 (ms)",
    "tpot_p50": "TPOT p50 (ms)",
    "tpot_p99": "TPOT p99 (ms)",
    "tokens": "Output tokens/s",
    "goodput": "Goodput (req/s)",
    "in_flight": "In flight",
}


def rows(stages: Sequence[Stage], live: Live, now: int) -> list[dict[str, str]]:
    """A row of `COLUMNS` for each stage that has begun, the newest first. `now`: nanoseconds since the run's start."""
    found = []
    for stage in reversed(stages):
        one = live.stages.get(stage.index, LiveStage())
        seconds = max((now if stage.end is None else stage.end) - stage.start, 1) / SECOND
        row = {"stage": f"{stage.index + 1}", "load": stage.label}
        row |= {"answered": f"{one.answered:,}", "failed": f"{one.failed:,}"}
        for short, name in (("ttft", "ttft_user"), ("tpot", "tpot")):
            row |= {f"{short}_{q}": milliseconds(one.percentile(name, share)) for q, share in PERCENTILES.items()}
        row |= {"tokens": f"{one.tokens / seconds:,.0f}", "goodput": f"{one.good / seconds:,.1f}"}
        row["in_flight"] = f"{live.in_flight:,}" if stage.end is None else ""
        found.append(row)
    return found


def milliseconds(seconds: float | None) -> str:
    """To one decimal below 10; empty where unknown."""
    if seconds is None:
        return ""
    return "failed" if math.isinf(seconds) else f"{1e3 * seconds:,.{seconds < 0.01:d}f}"
