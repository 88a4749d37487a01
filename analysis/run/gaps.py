"""Gaps between successive chunks, pooled over a window: exact percentiles of what is too long to be kept.

Ten million answers of a hundred tokens have a billion gaps. They are counted twice over: first how many fall into each
of about a million equal bins, then, nanosecond by nanosecond, inside the few bins that hold a percentile.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from analysis.run.flow import SLICE, flattened
from analysis.verdict.statistics.estimate import nearest_rank
from records.stage import SECOND

BIN_BITS = 20  # of the number of bins
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PooledGaps:
    """Seconds. `percentiles` belong to the quantiles that were asked for; `deviation` is `None` of a single gap."""

    n: int
    mean: float
    deviation: float | None
    least: float
    largest: float
    percentiles: tuple[float, ...]


class Moments:
    """Number, mean and variance of what comes slice by slice."""

    def __init__(self) -> None:
        self.n = 0
        self.least, self.largest = math.inf, -math.inf
        self._pivot = 0.0  # near the mean, so that the sum of squares keeps its digits
        self._sum = self._squares = 0.0

    def add(self, values: npt.NDArray[np.int64]) -> None:
        if self.n == 0:
            self._pivot = float(values.mean())
        self.n += len(values)
        self.least, self.largest = min(self.least, int(values.min())), max(self.largest, int(values.max()))
        centred = values - self._pivot
        self._sum += float(centred.sum())
        self._squares += float(centred @ centred)

    @property
    def mean(self) -> float:
        return self._pivot + self._sum / self.n

    @property
    def deviation(self) -> float | None:
        if self.n < 2:
            return None
        return math.sqrt(max(self._squares - self._sum**2 / self.n, 0.0) / (self.n - 1))


def pooled_gaps(table: Path, start: int, end: int, longest: int, quantiles: Sequence[float]) -> PooledGaps | None:
    """Of the answers scheduled in [start, end) that ended well; every gap counts once. `None` where there is none.

    `longest` is a duration in nanoseconds that gaps hardly exceed; `quantiles` are taken by nearest rank.
    """
    inside = (pl.col("outcome") == "ok") & pl.col("t_sched").is_between(start, end, closed="left")
    requests = pl.scan_parquet(table).filter(inside).select("icl")
    shift = max(int(longest).bit_length() - BIN_BITS, 0)
    moments, counts = Moments(), np.zeros(1, dtype=np.int64)
    for gaps in _gaps(requests):
        moments.add(gaps)
        counts = _added(counts, np.bincount(gaps >> shift))
    if moments.n == 0:
        return None
    found = _values_at(requests, [nearest_rank(moments.n, q) for q in quantiles], counts, shift)
    deviation = None if moments.deviation is None else moments.deviation / SECOND
    extremes = (moments.least / SECOND, moments.largest / SECOND)
    return PooledGaps(moments.n, moments.mean / SECOND, deviation, *extremes, tuple(one / SECOND for one in found))


def _gaps(requests: pl.LazyFrame) -> Iterator[npt.NDArray[np.int64]]:
    for part in requests.collect_batches(chunk_size=SLICE, maintain_order=False):
        gaps, _ = flattened(part["icl"])
        if len(gaps):
            yield gaps


def _added(counts: Counts, more: Counts) -> Counts:
    longer, shorter = (counts, more) if len(counts) >= len(more) else (more, counts)
    longer[: len(shorter)] += shorter
    return longer


def _values_at(requests: pl.LazyFrame, wanted: Sequence[int], counts: Counts, shift: int) -> list[int]:
    """The values of these ranks, from 1, given how many values each bin of 2**`shift` nanoseconds holds."""
    below = np.concatenate(([0], np.cumsum(counts)))
    bins = [int(np.searchsorted(below, rank)) - 1 for rank in wanted]
    if shift == 0:
        return bins
    inside = {one: np.zeros(1 << shift, dtype=np.int64) for one in bins}
    for gaps in _gaps(requests):
        in_bin = gaps >> shift
        for one, counted in inside.items():
            counted += np.bincount(gaps[in_bin == one] - (one << shift), minlength=1 << shift)
    return [
        (one << shift) + int(np.searchsorted(np.cumsum(inside[one]), rank - below[one]))
        for one, rank in zip(bins, wanted, strict=True)
    ]
