"""The median of a measure, with its spread and its 95 % interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.verdict.statistics import REPEATS, interval_ranks, least_samples, repeats_interval
from bench.result.document import Series

MIDDLE = 0.5


@dataclass(frozen=True, slots=True)
class Middle:
    """`mad` is the median absolute deviation of all samples, `None` of one. `why` says why there is no interval.

    The interval is the wider of two: what the samples allow if they are independent (ranks of the median, binomial),
    and, from three rounds on, what the rounds' medians allow (Student's t), which also holds where processes differ.
    """

    median: float
    mad: float | None
    low: float | None
    high: float | None
    n: int
    why: str | None = None


def middle_of(series: Series) -> Middle | None:
    """`None` without samples."""
    values = np.sort(np.asarray(series.samples, dtype=np.float64))
    n = len(values)
    if not n:
        return None
    median = float(np.median(values))
    mad = float(np.median(np.abs(values - median))) if n > 1 else None
    over_rounds = repeats_interval(series.medians)
    bounds = [bound for bound in (over_rounds.low, over_rounds.high) if bound is not None]
    if n >= least_samples(MIDDLE):
        low, high = interval_ranks(n, MIDDLE)
        bounds += [float(values[low - 1]), float(values[high - 1])]
    if not bounds:
        return Middle(median, mad, None, None, n, f"{len(series.medians)} < {REPEATS} rounds")
    if len(series.medians) < REPEATS:
        why = f"of {len(series.medians)} process{'es' * (len(series.medians) > 1)}: another may differ"
        return Middle(median, mad, min(bounds), max(bounds), n, why)
    return Middle(median, mad, min(bounds), max(bounds), n)
