"""Instants of arrivals for the simulation, drawn as an array."""

from __future__ import annotations

import math

import numpy as np

from analysis.plan.steps import Floats, Generator

SPARE = 6.0  # standard deviations of the number of arrivals, drawn beyond its mean


def gamma_arrivals(rate: float, cv: float, seconds: float, rng: Generator) -> Floats:
    """Gaps are gamma-distributed with this coefficient of variation: 1 is a Poisson process, 0 even spacing.

    The first gap has passed in part at 0, by chance.
    """
    expected = rate * seconds
    count = int(expected + SPARE * max(cv, 1.0) * math.sqrt(expected)) + 16
    gaps = rng.gamma(1 / cv**2, cv**2 / rate, count) if cv else np.full(count, 1 / rate)
    gaps[0] *= rng.random()
    times = np.cumsum(gaps)
    return np.asarray(times[times < seconds], dtype=np.float64)
