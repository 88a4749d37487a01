"""Gaps between successive chunks, pooled over a window: exact percentiles of what is too long to be kept.

Ten million answers of a hundred tokens have a billion gaps. They are counted twice over: first how many fall into each
of some hundred thousand equal bins, then, nanosecond by nanosecond, inside the few bins that hold a percentile.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from analysis.run.flow import SLICE, Gaps, flattened
from analysis.verdict.statistics.estimate import nearest_rank
from records.stage import SECOND

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

    def add(self, values: Gaps) -> None:
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


@dataclass(slots=True)
class _Window:
    """What has been counted of one window: `counts` by bins, then `inside` the bins that hold a percentile."""

    start: int
    end: int
    moments: Moments
    counts: Counts
    inside: dict[int, Counts]


def pooled_gaps(
    table: Path, windows: Sequence[tuple[int, int]], longest: int, quantiles: Sequence[float]
) -> list[PooledGaps | None]:
    """For each [start, end), of the answers scheduled in it that ended well; `None` where they have no gaps.

    Every gap counts once. `longest` is a duration in nanoseconds that gaps hardly exceed; `quantiles` are taken by
    nearest rank.
    """
    shift = (int(longest).bit_length() + 1) // 2
    found = [_Window(start, end, Moments(), np.zeros(1, dtype=np.int64), {}) for start, end in windows]
    for window, gaps in _gaps(table, found):
        window.moments.add(gaps)
        window.counts = _added(window.counts, np.bincount(gaps >> shift))
    for window in found:
        bins = {_bin_of(rank, window.counts) for rank in _ranks(window, quantiles)}
        window.inside = {one: np.zeros(1 << shift, dtype=np.int64) for one in bins}
    for window, gaps in _gaps(table, found):
        in_bin = gaps >> shift
        for one, counted in window.inside.items():
            counted += np.bincount(gaps[in_bin == one] - (one << shift), minlength=1 << shift)
    return [_pooled(window, shift, quantiles) for window in found]


def _gaps(table: Path, windows: Sequence[_Window]) -> Iterator[tuple[_Window, Gaps]]:
    """A slice of requests at a time, each by the window that it belongs to."""
    requests = pl.scan_parquet(table).filter(pl.col("outcome") == "ok").select("t_sched", "icl")
    for part in requests.collect_batches(chunk_size=SLICE, maintain_order=False):
        for window in windows:
            inside = part["t_sched"].is_between(window.start, window.end, closed="left")
            if inside.any():
                gaps, _ = flattened(part["icl"] if inside.all() else part.filter(inside)["icl"])
                if len(gaps):
                    yield window, gaps


def _added(counts: Counts, more: Counts) -> Counts:
    longer, shorter = (counts, more) if len(counts) >= len(more) else (more, counts)
    longer[: len(shorter)] += shorter
    return longer


def _ranks(window: _Window, quantiles: Sequence[float]) -> list[int]:
    return [nearest_rank(window.moments.n, q) for q in quantiles] if window.moments.n else []


def _bin_of(rank: int, counts: Counts) -> int:
    """Where the value of this rank, from 1, was counted."""
    return int(np.searchsorted(np.cumsum(counts), rank))


def _pooled(window: _Window, shift: int, quantiles: Sequence[float]) -> PooledGaps | None:
    moments = window.moments
    if moments.n == 0:
        return None
    percentiles = []
    for rank in _ranks(window, quantiles):
        one = _bin_of(rank, window.counts)
        below = int(window.counts[:one].sum())
        percentiles.append(((one << shift) + _bin_of(rank - below, window.inside[one])) / SECOND)
    deviation = None if moments.deviation is None else moments.deviation / SECOND
    extremes = (moments.least / SECOND, moments.largest / SECOND)
    return PooledGaps(moments.n, moments.mean / SECOND, deviation, *extremes, tuple(percentiles))
