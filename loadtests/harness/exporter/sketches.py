"""Percentiles of a run so far: values counted by logarithm, so that processes can be added up."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from records.metrics import BY_NAME, REQUEST_METRICS
from records.rules import is_failure, nearest_rank

GROWTH = math.log(1.02)  # of a bucket: its middle is within 1 % of everything in it
SKETCHED = tuple(metric.name for metric in REQUEST_METRICS if metric.shown.live)


class Ended(Protocol):
    """The part of a request's record that is read here; its metrics read others."""

    @property
    def outcome(self) -> str: ...


@dataclass(slots=True)
class Sketches:
    """Of each metric in `SKETCHED`, over requests of one stage."""

    failed: int = 0
    buckets: dict[str, Counter[int]] = field(default_factory=lambda: {name: Counter() for name in SKETCHED})

    def count(self, request: Ended) -> None:
        if request.outcome == "ok":
            for name, counts in self.buckets.items():
                if (value := BY_NAME[name].of(request)) is not None and value > 0:
                    counts[round(math.log(value) / GROWTH)] += 1
        elif is_failure(request.outcome):
            self.failed += 1

    def percentile(self, name: str, q: float) -> float | None:
        """Seconds; failed requests count as infinitely long where the metric has a value at all."""
        counts = self.buckets[name]
        if not counts:
            return None
        rank = nearest_rank(counts.total() + self.failed, q)
        for bucket in sorted(counts):
            rank -= counts[bucket]
            if rank <= 0:
                return math.exp(bucket * GROWTH)
        return math.inf

    def add(self, other: Sketches) -> None:
        self.failed += other.failed
        for name, counts in other.buckets.items():
            self.buckets[name].update(counts)

    def message(self) -> list[Any]:
        """For the master; `taken` is the other side."""
        return [self.failed, {name: list(counts.items()) for name, counts in self.buckets.items()}]

    @classmethod
    def taken(cls, message: Sequence[Any]) -> Sketches:
        failed, buckets = message
        return cls(failed, {name: Counter(dict(pairs)) for name, pairs in buckets.items()})


def milliseconds(seconds: float | None) -> str:
    """To one decimal below 10; empty where unknown."""
    if seconds is None:
        return ""
    return "failed" if math.isinf(seconds) else f"{1e3 * seconds:,.{seconds < 0.01:d}f}"
