"""Numbers with their spread: percentiles, rates and ratios, each with a 95 % interval or the reason there is none.

Three things make the intervals of load tests too narrow, and are dealt with here. Latencies are skewed, so a
percentile's interval comes from order statistics, which assume no shape. Successive requests are alike, because they
wait in the same queue, so an interval counts the *effective* number of samples, not the number of lines. And tails
need many samples: below the least number that can bound a percentile (368 for p99) there is a reason instead of an
interval.

The coverage of all of them is simulated in the tests:  pytest tests/analysis/test_statistics.py
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import fft, stats

Floats = npt.NDArray[np.float64]

CONFIDENCE = 0.95
TAIL = (1 - CONFIDENCE) / 2
BATCHES = 10  # batch means: few enough to be nearly independent, enough for a t quantile that is not absurd


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number, its 95 % interval, and from how many observations. `why` says why a value or an interval is missing."""

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0
    why: str | None = None


def percentile(ordered: Floats, q: float) -> float:
    """The nearest-rank percentile of ascending values, for q in (0, 1]: the smallest value that at least a share q do
    not exceed.

    It is always a value that was observed, never an interpolation: Hyndman & Fan (1996), definition 1.
    """
    return float(ordered[nearest_rank(len(ordered), q) - 1])


def nearest_rank(n: int, q: float) -> int:
    """ceil(q·n) from 1 to n; q is rounded first, because 0.95 · 20 is a hair above 19 in binary."""
    return min(max(math.ceil(round(q * n, 9)), 1), n)


def least_samples(q: float) -> int:
    """How many samples the two-sided interval of percentile q needs: 6 for p50, 36 for p90, 72 for p95, 368 for p99."""
    # The largest value bounds the percentile from above unless all n lie below it: q^n ≤ 2.5 %. Likewise from below.
    return math.ceil(math.log(TAIL) / math.log(max(q, 1 - q)))


def inefficiency(series: npt.ArrayLike) -> float:
    """By how much autocorrelation inflates the variance of the mean of a stationary series: 1 for independent values.

    The initial monotone sequence estimate of 1 + 2 Σ ρ_k (Geyer 1992), never below 1: what looks like negative
    correlation is not allowed to narrow an interval.
    """
    centred = np.asarray(series, dtype=np.float64)
    n = len(centred)
    if n < 4:
        return 1.0
    centred = centred - centred.mean()
    variance = float(centred @ centred)
    if variance <= 0:
        return 1.0
    size = fft.next_fast_len(2 * n, real=True)  # padded, so that the ends do not wrap round
    spectrum = fft.rfft(centred, size)
    rho = fft.irfft(spectrum * np.conj(spectrum), size)[:n] / variance
    pairs = rho[0 : n - 1 : 2] + rho[1:n:2]  # sums of neighbours: positive and decreasing in theory
    ends = np.flatnonzero(pairs <= 0)
    positive = pairs[: ends[0]] if len(ends) else pairs
    return max(1.0, float(2 * np.minimum.accumulate(positive).sum() - 1)) if len(positive) else 1.0


def percentile_interval(in_time_order: npt.ArrayLike, q: float) -> Estimate:
    """Percentile q with its interval from order statistics.

    The rank of the true percentile among n independent values is binomial(n, q) (Hahn & Meeker 1991, section 5.2).
    Where successive values are correlated, n is replaced by n / inefficiency, that of the indicator "at or below the
    percentile".
    """
    values = np.asarray(in_time_order, dtype=np.float64)
    n = len(values)
    if n == 0:
        return Estimate(None, why="no samples")
    ordered = np.sort(values)
    value, least = percentile(ordered, q), least_samples(q)
    if n < least:
        return Estimate(value, n=n, why=f"{n} < {least}")
    effective = int(n / inefficiency(values <= value))
    if effective < least:  # the requests were so alike that they are worth fewer
        return Estimate(value, n=n, why=f"≈{effective} < {least}")
    low, high = interval_ranks(effective, q)
    scale = n / effective
    low_rank, high_rank = max(1, math.floor(low * scale)), min(n, math.ceil(high * scale))
    return Estimate(value, float(ordered[low_rank - 1]), float(ordered[high_rank - 1]), n)


def interval_ranks(n: int, q: float) -> tuple[int, int]:
    """Ranks l < u, from 1, with P(x_(l) ≤ true percentile ≤ x_(u)) ≥ 95 %, at most 2.5 % beyond either end."""
    distribution: Any = stats.binom(n, q)
    return int(distribution.ppf(TAIL)), int(distribution.ppf(1 - TAIL)) + 1


def mean_interval(in_time_order: npt.ArrayLike) -> Estimate:
    """The mean of a series with a t interval that allows for autocorrelation, as for the batches of a steady window.

    Batch means (Law & Kelton, section 9.5.3), with the standard error and the degrees of freedom corrected by what
    correlation is left between the batches.
    """
    values = np.asarray(in_time_order, dtype=np.float64)
    n = len(values)
    if n == 0:
        return Estimate(None, why="no samples")
    mean = float(values.mean())
    if n < 3:
        return Estimate(mean, n=n, why=f"{n} < 3")
    half = standard_error(values) * t_quantile(freedom(values))
    return Estimate(mean, mean - half, mean + half, n)


def standard_error(in_time_order: npt.ArrayLike) -> float:
    values = np.asarray(in_time_order, dtype=np.float64)
    return float(values.std(ddof=1) * math.sqrt(inefficiency(values) / len(values)))


def freedom(in_time_order: npt.ArrayLike) -> float:
    """Degrees of freedom of `standard_error`: the effective number of values, less one; at least one."""
    values = np.asarray(in_time_order, dtype=np.float64)
    return max(1.0, len(values) / inefficiency(values) - 1)


def t_quantile(degrees: float) -> float:
    """How many standard errors to either side hold 95 %: 2.26 for nine degrees of freedom."""
    return float(stats.t.ppf(1 - TAIL, degrees))


def ratio_interval(numerator: Sequence[float], denominator: Sequence[float]) -> Estimate:
    """Mean over mean, each of a series of batch means, with a 95 % interval.

    By the delta method on the logarithm, var(log r̂) ≈ (s_a/ā)² + (s_b/b̄)², with Welch's degrees of freedom: the
    interval never reaches below zero and does not depend on which of the two is called the numerator.
    """
    top, bottom = np.asarray(numerator, dtype=np.float64), np.asarray(denominator, dtype=np.float64)
    if min(len(top), len(bottom)) == 0 or top.mean() <= 0 or bottom.mean() <= 0:
        return Estimate(None, why="one side has no value above zero")
    ratio, n = float(top.mean() / bottom.mean()), min(len(top), len(bottom))
    if n < 3:
        return Estimate(ratio, n=n, why=f"{n} < 3")
    parts = [(standard_error(side) / float(side.mean())) ** 2 for side in (top, bottom)]
    total = sum(parts)
    if total == 0:
        return Estimate(ratio, ratio, ratio, n)
    weights = sum(part**2 / freedom(side) for part, side in zip(parts, (top, bottom), strict=True))
    half = t_quantile(total**2 / weights) * math.sqrt(total)
    return Estimate(ratio, ratio * math.exp(-half), ratio * math.exp(half), n)


def trend(in_time_order: npt.ArrayLike) -> tuple[float, float]:
    """Does a series grow or shrink? Kendall's τ against time and its two-sided p value (the test of Mann 1945)."""
    values = np.asarray(in_time_order, dtype=np.float64)
    if len(values) < 4 or bool((values == values[0]).all()):
        return 0.0, 1.0
    tau, p = stats.kendalltau(np.arange(len(values)), values)
    return float(tau), float(p)


def share_interval(hits: int, n: int) -> Estimate:
    """A share of independent trials with Wilson's (1927) interval, which holds near 0 and 1 too."""
    if n == 0:
        return Estimate(None, why="no samples")
    interval: Any = stats.binomtest(hits, n).proportion_ci(CONFIDENCE, method="wilson")
    return Estimate(hits / n, float(interval.low), float(interval.high), n)
