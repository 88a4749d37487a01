"""Correlated draws, and the width of an interval."""

from __future__ import annotations

import math

import numpy as np
import scipy

from analysis.verdict.statistics import Estimate, Floats


def queueing(rng: np.random.Generator, n: int, rho: float) -> Floats:
    """Lognormal, each value correlated with the one before it."""
    shocks = rng.standard_normal(n + 200) * math.sqrt(1 - rho**2)
    return np.asarray(np.exp(scipy.signal.lfilter([1], [1, -rho], shocks)[200:]), dtype=np.float64)


def width(estimate: Estimate) -> float:
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.high - estimate.low
