"""A histogram of one metric: counts only grow, processes are added up, percentiles are read at any time."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence

import msgspec

from enginebench.records.metrics import PERCENTILES
from enginebench.records.rules import nearest_rank
from enginebench.records.view import EMPTY, Distribution, Estimate, Missing


class Histogram(msgspec.Struct):
    """`values` counts finite values by bucket, `bounds` the lower bounds of requests that were cut off, and `failed`
    the requests that count as +∞. `total` sums the finite values, in seconds. Bucket `i` ends at `edges[i]`."""

    values: dict[int, int] = {}
    bounds: dict[int, int] = {}
    failed: int = 0
    total: float = 0.0

    @property
    def finite(self) -> int:
        return sum(self.values.values())

    def put(self, bucket: int, value: float, is_bound: bool) -> None:
        if value == math.inf:
            self.failed += 1
        elif is_bound:
            self.bounds[bucket] = self.bounds.get(bucket, 0) + 1
        else:
            self.values[bucket] = self.values.get(bucket, 0) + 1
            self.total += value

    def add(self, other: Histogram) -> None:
        self.values = _sum(self.values, other.values)
        self.bounds = _sum(self.bounds, other.bounds)
        self.failed += other.failed
        self.total += other.total

    def distribution(self, edges: Sequence[float], ok: int) -> Distribution:
        """Return the distribution if `ok` requests succeeded; it is empty if none of them has the metric."""
        finite, bounds = self.finite, sum(self.bounds.values())
        n = finite + bounds + self.failed
        if not n or (ok and not finite):
            return EMPTY
        ordered = sorted(self.values.items())
        highest = ordered if not bounds else sorted(_sum(self.values, self.bounds).items())
        percentiles = {}
        for name, q in PERCENTILES.items():
            value = value_at(edges, ordered, nearest_rank(n, q))
            if value_at(edges, highest, nearest_rank(n, q)) != value:
                percentiles[name] = Estimate(None, n=n, missing=Missing.CUT_OFF)
            else:
                percentiles[name] = Estimate(value, n=n, missing=Missing.FAILED if math.isinf(value) else None)
        answered = {name: value_at(edges, ordered, nearest_rank(finite, q)) for name, q in PERCENTILES.items()}
        return Distribution(
            n=n,
            failed=self.failed,
            mean=self.total / finite if finite else None,
            deviation=None,
            least=None,
            largest=None,
            percentiles=percentiles,
            answered=answered if self.failed and finite else None,
        )

    def up_to(self, edges: Sequence[float], exported: Sequence[float]) -> list[int]:
        """Count the finite values up to each of the `exported` edges, which are a part of `edges`."""
        within = [0] * (len(exported) + 1)
        for bucket, count in self.values.items():
            within[bisect_left(exported, edges[bucket]) if bucket < len(edges) else -1] += count
        total, counts = 0, []
        for count in within[:-1]:
            total += count
            counts.append(total)
        return counts


def value_at(edges: Sequence[float], ordered: Sequence[tuple[int, int]], rank: int) -> float:
    """Return the middle of the bucket of the value with this rank; +∞ beyond all buckets."""
    for bucket, count in ordered:
        rank -= count
        if rank <= 0:
            if bucket == 0:
                return 0.0  # less than the smallest edge
            return edges[-1] if bucket == len(edges) else math.sqrt(edges[bucket - 1] * edges[bucket])
    return math.inf


def _sum(a: Mapping[int, int], b: Mapping[int, int]) -> dict[int, int]:
    return {bucket: a.get(bucket, 0) + b.get(bucket, 0) for bucket in {*a, *b}}
