"""Gaps between successive chunks, pooled over a window: exact percentiles without keeping all gaps in memory.

Ten million answers of a hundred tokens have a billion gaps. They are counted twice: first in some hundred thousand
equal bins, then, nanosecond by nanosecond, inside the few bins that contain a percentile. For the second count, the
first gaps of a window are kept, and of the later gaps only those near the percentiles of the first ones. If a
percentile moves outside the kept gaps, the chunks are read again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from enginebench.analysis.arrays import Integers
from enginebench.analysis.data.chunks import Chunks, Gaps
from enginebench.records.metrics import PERCENTILES
from enginebench.records.rules import nearest_rank
from enginebench.records.stage import SECOND
from enginebench.records.view import EMPTY, Distribution, Estimate

FIRST = 250_000  # gaps of a window that are always kept
NEAR = 0.05  # later gaps are kept within this many standard deviations of the rank from the first gaps' percentiles
KEPT = 64 * 1024 * 1024  # bytes of kept gaps; if there are more, none are kept
MAX_GAP = 10_000 * SECOND  # longer gaps come from contradictory records and are cut to this


class Moments:
    """Number, mean and variance of values that come slice by slice."""

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
        self._squares += float(np.einsum("i,i->", centred, centred))  # BLAS would start threads of its own

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
    """Counts of one window: `counts` by bin, then `inside` the bins that hold a percentile. `kept` are its gaps in the
    `ranges`, or all gaps if there are no ranges yet."""

    start: int
    end: int
    moments: Moments
    counts: Integers
    inside: dict[int, Integers]
    ranges: list[tuple[int, int]] = field(default_factory=list)
    kept: list[npt.NDArray[Any]] = field(default_factory=list)


class GapCounter:
    """The gaps of the successful requests scheduled in each [start, end); every gap counts once.

    Pass all chunks to `count`; if the counter is not `settled` then, pass all to `locate`. `pooled` has the result.
    `longest` is a duration in nanoseconds that gaps hardly exceed.
    """

    def __init__(self, windows: Sequence[tuple[int, int]], longest: int) -> None:
        self._windows = [_Window(start, end, Moments(), np.zeros(1, dtype=np.int64), {}) for start, end in windows]
        expected = min(max(int(longest), SECOND), MAX_GAP)
        self._ceiling = min(64 * expected, MAX_GAP)
        self._shift = (expected.bit_length() + 1) // 2  # the number of bins is about the width of one in nanoseconds
        self._full = False

    def count(self, part: Chunks) -> None:
        for window, gaps in self._by_window(part):
            window.moments.add(gaps)
            counts = np.bincount(gaps >> self._shift)
            longer, shorter = sorted((window.counts, counts), key=len, reverse=True)
            longer[: len(shorter)] += shorter
            window.counts = longer
            if not self._full:
                self._keep(window, gaps)

    def settled(self) -> bool:
        """Return whether all gaps in the bins that hold a percentile were kept."""
        windows = [window for window in self._windows if window.moments.n]
        if self._full or not all(map(self._covered, windows)):
            return False
        for window in windows:
            self._locate(window, np.concatenate(window.kept))
        return True

    def locate(self, part: Chunks) -> None:
        for window, gaps in self._by_window(part):
            self._locate(window, gaps)

    def _locate(self, window: _Window, gaps: Gaps) -> None:
        if not window.inside:
            bins = {_bin_of(rank, window.counts) for rank in self._ranks(window)}
            window.inside = {place: np.zeros(1 << self._shift, dtype=np.int64) for place in bins}
        in_bin = gaps >> self._shift
        for place, counted in window.inside.items():
            counted += np.bincount(gaps[in_bin == place] - (place << self._shift), minlength=1 << self._shift)

    def _likely(self, counts: Integers) -> list[tuple[int, int]]:
        """Predict the bins that hold the percentiles of all gaps from the counts of the first ones."""
        shares = np.cumsum(counts) / counts.sum()
        spreads = [(q, NEAR * math.sqrt(q * (1 - q))) for q in PERCENTILES.values()]
        ends = [np.searchsorted(shares, (q - spread, q + spread)) for q, spread in spreads]
        return [(int(low) << self._shift, (int(high) + 1) << self._shift) for low, high in ends]

    def _keep(self, window: _Window, gaps: Gaps) -> None:
        window.kept.append(_within(gaps, window.ranges) if window.ranges else gaps)
        if not window.ranges and window.moments.n >= FIRST:
            window.ranges = self._likely(window.counts)
            window.kept = [_within(np.concatenate(window.kept), window.ranges)]
        if sum(kept.nbytes for window in self._windows for kept in window.kept) > KEPT:  # too many are equal
            self._full = True
            for window in self._windows:
                window.kept.clear()

    def _covered(self, window: _Window) -> bool:
        starts = [_bin_of(rank, window.counts) << self._shift for rank in self._ranks(window)]
        return not window.ranges or all(any(low <= start < high for low, high in window.ranges) for start in starts)

    @property
    def pooled(self) -> list[Distribution]:
        """Return the distribution of each window in seconds; long answers weigh more."""
        return [self._pooled(window) if window.moments.n else EMPTY for window in self._windows]

    def _by_window(self, part: Chunks) -> Iterator[tuple[_Window, Gaps]]:
        for window in self._windows:
            inside = part.ok & (part.sched >= window.start) & (part.sched < window.end)
            if (inside | (part.later == 0)).all():
                gaps = part.gaps  # copies nothing if all gaps belong to the window
            elif inside.any():
                gaps = part.gaps[np.repeat(inside, part.later)]
            else:
                continue
            if len(gaps):  # a gap of four bytes never needs too many bins
                yield window, gaps if gaps.dtype == np.uint32 else np.minimum(gaps, self._ceiling)

    def _ranks(self, window: _Window) -> list[int]:
        return [nearest_rank(window.moments.n, q) for q in PERCENTILES.values()]

    def _pooled(self, window: _Window) -> Distribution:
        moments, percentiles = window.moments, {}
        for name, rank in zip(PERCENTILES, self._ranks(window), strict=True):
            place = _bin_of(rank, window.counts)
            below = int(window.counts[:place].sum())
            value = ((place << self._shift) + _bin_of(rank - below, window.inside[place])) / SECOND
            percentiles[name] = Estimate(value, n=moments.n)  # gaps of one answer are correlated: no interval
        deviation = None if moments.deviation is None else moments.deviation / SECOND
        extremes = (moments.least / SECOND, moments.largest / SECOND)
        return Distribution(moments.n, 0, moments.mean / SECOND, deviation, *extremes, percentiles)


def _within(gaps: Gaps, ranges: Sequence[tuple[int, int]]) -> Gaps:
    inside = np.zeros(len(gaps), dtype=np.bool_)
    for low, high in ranges:
        inside |= (gaps >= low) & (gaps < high)
    return gaps[inside]


def _bin_of(rank: int, counts: Integers) -> int:
    """Return the bin of the value with this rank, which counts from 1."""
    return int(np.searchsorted(np.cumsum(counts), rank))
