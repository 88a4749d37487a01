"""Was the window steady? Its beginning, a trend, and whether its users moved in lock step."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from enginebench.analysis.arrays import Floats
from enginebench.analysis.stats.effective_size import first_cosines, ranks_of
from enginebench.analysis.stats.student_t import t_p_value

MIN_POINTS = 20  # required to test a series
MIN_EFFECTIVE = 12  # independent points; with fewer, a drifting series cannot be told from a steady one
COSINES = 5  # symmetric ones, whose power a linear trend does not change
SIGNIFICANT = 0.01  # chance, of each of two tests, that a steady series is called unsteady
MATERIAL = 0.05  # share of the mean by which a series must have changed to matter
BEGINNING = 0.1  # share of the window that is compared with the rest


def steadiness(series: npt.ArrayLike) -> bool | None:
    """Return whether a series over equal parts of the window is steady: throughput, mean TTFT, TPOT or requests in
    flight. `None` if it has too few points, or too few independent ones.

    60 to 240 parts are best; parts without a value (NaN) are left out.
    """
    values = np.asarray(series, dtype=np.float64)
    values = values[np.isfinite(values)]
    if len(values) < MIN_POINTS:
        return None
    if bool((values == values[0]).all()):
        return True
    slope, _ = _line(values)
    mean = abs(float(values.mean()))
    change = slope * len(values) / mean if mean > 0 else 0.0
    transient_p, gap = _transient(values)
    clear = _effective_points(values) >= MIN_EFFECTIVE
    alpha = SIGNIFICANT if clear else SIGNIFICANT / 10
    grows = _trend_p(values) < alpha and abs(change) >= MATERIAL
    starts_differently = transient_p < alpha and gap >= MATERIAL * mean
    return False if grows or starts_differently else (True if clear else None)


def _effective_points(values: Floats) -> float:
    """Return how many independent points the series is worth, if it is an AR(1) process about its linear trend."""
    _, residuals = _line(values)
    power = float(residuals @ residuals)
    rho = float(residuals[1:] @ residuals[:-1]) / power if power > 0 else 0.0
    return len(values) * (1 - rho) / (1 + rho)


def _line(values: Floats) -> tuple[float, Floats]:
    """Return the slope per point of the least-squares line, and the residuals about it."""
    time = np.arange(len(values)) - (len(values) - 1) / 2
    centred = values - values.mean()
    slope = float(centred @ time) / float(time @ time)
    return slope, centred - slope * time


def _trend_p(values: Floats) -> float:
    """Return the two-sided p value of a t test of the slope of the ranks, which allows for autocorrelation.

    The long-run variance comes from their projections on cosines that are symmetric about the middle of the window: a
    linear trend does not contain them, so they show only the noise (equal-weighted cosines: Müller 2007; Lazarus,
    Lewis, Stock & Watson 2018)."""
    ranks, time = ranks_of(values), np.arange(len(values)) - (len(values) - 1) / 2
    ranks = ranks - ranks.mean()
    return _p_value(float(ranks @ time) / math.sqrt(float(time @ time)), _noise(ranks))


def _noise(centred: Floats) -> float:
    """Return the long-run variance of a series that may have a linear trend."""
    return float((first_cosines(centred, 2 * COSINES)[2::2] ** 2).mean())


def _p_value(projection: float, variance: float) -> float:
    if variance <= 0:
        return 1.0 if projection == 0 else 0.0
    return t_p_value(projection / math.sqrt(variance), COSINES)


def _transient(values: Floats) -> tuple[float, float]:
    """Return the p value of a test that the beginning equals the rest, and the difference of their means."""
    first = math.ceil(BEGINNING * len(values))
    beginning, rest = values[:first], values[first:]
    gap = float(beginning.mean() - rest.mean())
    scale = math.sqrt(1 / len(beginning) + 1 / len(rest))
    return _p_value(gap / scale, _noise(rest - rest.mean())), abs(gap)


def lock_step(arrival_times: npt.ArrayLike, window: tuple[float, float], users: int) -> float | None:
    """Return the index of dispersion of a closed loop's arrivals: variance over mean of the counts in tenths of a
    cycle.

    A cycle is the mean time from one request of a user to the next, users / arrival rate. The index is 1 for Poisson
    arrivals, below 1 for users evenly spread, and up to 0.9 × users if all send at once. The limit is `LOCK_STEP` in
    enginebench/records/findings/load.py. `None` if the window holds fewer than two cycles.
    """
    start, end = window
    times = np.asarray(arrival_times, dtype=np.float64)
    times = times[(times >= start) & (times < end)]
    if users < 1 or len(times) < 2 * users:
        return None
    bins = max(10, round(10 * len(times) / users))
    counts = np.histogram(times, bins, (start, end))[0]
    return float(counts.var(ddof=1) / counts.mean())
