"""Correlated draws, the interval of one percentile, and the width of an interval."""

import math

import numpy as np
import numpy.typing as npt
import scipy

from enginebench.analysis.arrays import Floats
from enginebench.analysis.stats.intervals import percentile_intervals
from enginebench.records.view import Estimate


def queueing(rng: np.random.Generator, n: int, rho: float) -> Floats:
    """Draw lognormal values, each correlated with the previous one."""
    shocks = rng.standard_normal(n + 200) * math.sqrt(1 - rho**2)
    return np.asarray(np.exp(scipy.signal.lfilter([1], [1, -rho], shocks)[200:]), dtype=np.float64)


def percentile_interval(
    values: npt.ArrayLike, q: float, users: npt.ArrayLike | None = None, censored: npt.ArrayLike | None = None
) -> Estimate:
    return percentile_intervals(values, (q,), users, censored)[0]


def width(estimate: Estimate) -> float:
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.high - estimate.low
