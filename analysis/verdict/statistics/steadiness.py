"""Was the window steady? The length of its initial transient, a trend, and whether its users marched in lock step."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

LEAST = 20  # points below which nothing is said
TREND_P = 0.01
LOCK_STEP = 5.0  # index of dispersion of arrivals from which users march in lock step


@dataclass(frozen=True, slots=True)
class Steadiness:
    """Whether a series is steady; `None` where it has too few points.

    `truncation` is the share of the series that MSER-5 would cut off as its initial transient; `trend` is Kendall's τ
    against time and `p` its two-sided p value.
    """

    truncation: float | None
    trend: float
    p: float
    steady: bool | None


def steadiness(series: npt.ArrayLike) -> Steadiness:
    """Judge a series at equal intervals of the window (throughput, mean TTFT, TPOT, requests in flight per part)."""
    values = np.asarray(series, dtype=np.float64)
    values = values[np.isfinite(values)]
    tau, p = trend(values)
    if len(values) < LEAST:
        return Steadiness(None, tau, p, None)
    cut = mser(values)
    return Steadiness(cut, tau, p, p >= TREND_P)


def mser(values: npt.NDArray[np.float64], batch: int = 5) -> float:
    """Share of the series before its truncation point: the d that minimises the squared standard error of the mean of
    what follows, over the first half, in batches of five (MSER-5: White 1997; Franklin & White 2008).
    """
    size = batch if len(values) >= 10 * batch else 1
    means = values[: len(values) // size * size].reshape(-1, size).mean(axis=1)
    n = len(means)
    left = np.arange(n, 0, -1)
    total, squares = np.cumsum(means[::-1])[::-1], np.cumsum(means[::-1] ** 2)[::-1]
    error = (squares - total**2 / left) / left**2
    return float(np.argmin(error[: n // 2 + 1])) / n


def trend(in_time_order: npt.ArrayLike) -> tuple[float, float]:
    """Kendall's τ against time, and its two-sided p value with the variance corrected for the autocorrelation of the
    ranks of the detrended series (the modified Mann–Kendall test of Hamed & Rao 1998).
    """
    values = np.asarray(in_time_order, dtype=np.float64)
    n = len(values)
    if n < 4 or bool((values == values[0]).all()):
        return 0.0, 1.0
    tau = float(stats.kendalltau(np.arange(n), values).statistic)
    slope = float(stats.theilslopes(values).slope)
    ranks = stats.rankdata(values - slope * np.arange(n))
    centred = ranks - ranks.mean()
    rho = np.correlate(centred, centred, "full")[n - 1 :] / max(float(centred @ centred), 1e-300)
    lags = np.arange(1, n)
    kept = np.abs(rho[1:]) > 1.96 / math.sqrt(n)
    correction = 1 + 2 / (n * (n - 1) * (n - 2)) * float(
        ((n - lags) * (n - lags - 1) * (n - lags - 2) * rho[1:] * kept).sum()
    )
    s = tau * n * (n - 1) / 2
    variance = n * (n - 1) * (2 * n + 5) / 18 * max(1.0, correction)
    z = (abs(s) - 1) / math.sqrt(variance) if abs(s) > 1 else 0.0
    return tau, 2 * float(stats.norm.sf(z))


def lock_step(arrival_times: npt.ArrayLike, window: tuple[float, float], users: int) -> float | None:
    """Index of dispersion of the arrivals of a closed loop: variance over mean of their number in tenths of a cycle.

    A cycle is how long a user takes from one request to the next on average, users / arrival rate. 1 for Poisson
    arrivals, below 1 for users evenly spread, up to 0.9 × users when all send at once. Compare with `LOCK_STEP`.
    `None` when the window holds fewer than two cycles.
    """
    start, end = window
    times = np.asarray(arrival_times, dtype=np.float64)
    times = times[(times >= start) & (times < end)]
    if users < 1 or len(times) < 2 * users:
        return None
    bins = max(10, round(10 * len(times) / users))
    counts = np.histogram(times, bins, (start, end))[0]
    return float(counts.var(ddof=1) / counts.mean())
