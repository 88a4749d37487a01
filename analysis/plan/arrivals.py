"""Instants of arrivals for the simulation, drawn as arrays: the processes of loadtests/harness/schedule/arrivals.py."""

from __future__ import annotations

import numpy as np

from analysis.plan.steps import Floats, Generator
from records.load import Rate

SPARE = 6.0  # standard deviations of the number of arrivals, drawn beyond its mean


def arrival_times(load: Rate, seconds: float, rng: Generator) -> Floats:
    """Arrivals in [0, `seconds`). Raises `ValueError` for a process that is not known."""
    name, _, given = load.arrivals.partition(":")
    cv = float(given.partition("=")[2]) if given else 1.0
    expected = load.per_second * seconds
    count = int(expected + SPARE * max(cv, 1.0) * expected**0.5) + 16
    match name:
        case "constant":
            gaps = np.full(count, 1 / load.per_second)
        case "poisson":
            gaps = rng.exponential(1 / load.per_second, count)
        case "gamma":
            gaps = rng.gamma(1 / cv**2, cv**2 / load.per_second, count)
        case _:
            raise ValueError(f"arrivals to plan for are constant, poisson or gamma:cv=2, not `{load.arrivals}`.")
    times = np.cumsum(gaps)
    return times[times < seconds]
