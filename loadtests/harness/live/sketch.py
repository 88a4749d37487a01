"""One metric of one stage, counted by buckets, so that processes can be added up and percentiles read at any time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from enginebench.records.metrics import PERCENTILES
from enginebench.records.rules import nearest_rank
from enginebench.records.view import EMPTY, Distribution, Estimate, Missing

Buckets = dict[int, int]


class Sketch(msgspec.Struct):
    """`known` counts values by bucket, `bounds` the lower bounds of requests that were cut off, `failed` those that
    count as +∞. `answered` values are of requests that ended well; `total` sums the known ones."""

    known: Buckets = {}
    bounds: Buckets = {}
    failed: int = 0
    answered: int = 0
    total: float = 0.0

    @property
    def n(self) -> int:
        return sum(self.known.values()) + sum(self.bounds.values()) + self.failed

    def add(self, other: Sketch) -> None:
        for mine, theirs in ((self.known, other.known), (self.bounds, other.bounds)):
            for bucket, count in theirs.items():
                mine[bucket] = mine.get(bucket, 0) + count
        self.failed += other.failed
        self.answered += other.answered
        self.total += other.total

    def distribution(self, edges: Sequence[float], ok: int) -> Distribution:
        """`ok` requests of the stage ended well; where none of them has the metric, nothing is said."""
        if not self.n or (ok and not self.answered and (self.failed or self.bounds)):
            return EMPTY
        known, ordered = sum(self.known.values()), _in_order(self.known)
        estimates = {name: self._percentile(edges, ordered, q) for name, q in PERCENTILES.items()}
        return Distribution(
            n=self.n,
            failed=self.failed,
            mean=self.total / known if known else None,
            deviation=None,
            least=None,
            largest=None,
            percentiles=estimates,
            answered={name: value_at(edges, ordered, nearest_rank(known, q)) for name, q in PERCENTILES.items()}
            if self.failed and known
            else None,
        )

    def _percentile(self, edges: Sequence[float], ordered: Sequence[tuple[int, int]], q: float) -> Estimate:
        """Withheld where a cut-off request may change its bucket."""
        rank = nearest_rank(self.n, q)
        most = value_at(edges, ordered, rank)
        if self.bounds:
            both = {
                bucket: self.known.get(bucket, 0) + self.bounds.get(bucket, 0) for bucket in {*self.known, *self.bounds}
            }
            if value_at(edges, _in_order(both), rank) != most:
                return Estimate(None, n=self.n, missing=Missing.CUT_OFF)
        return Estimate(most, n=self.n, missing=Missing.FAILED if math.isinf(most) else None)

    def up_to(self, edges: Sequence[float], exported: Iterable[float]) -> list[int]:
        """How many known values are at most each of the `exported` edges, which ascend."""
        ordered, place, so_far, counts = _in_order(self.known), 0, 0, []
        for edge in exported:
            while place < len(ordered) and ordered[place][0] < len(edges) and edges[ordered[place][0]] <= edge:
                so_far += ordered[place][1]
                place += 1
            counts.append(so_far)
        return counts


def value_at(edges: Sequence[float], ordered: Iterable[tuple[int, int]], rank: int) -> float:
    """The middle of the bucket in which the value of this rank is; +∞ beyond all of them."""
    for bucket, count in ordered:
        rank -= count
        if rank <= 0:
            if bucket == 0:
                return 0.0  # smaller than can be told from nothing
            return edges[-1] if bucket == len(edges) else math.sqrt(edges[bucket - 1] * edges[bucket])
    return math.inf


def _in_order(buckets: Mapping[int, int]) -> list[tuple[int, int]]:
    return sorted(buckets.items())
