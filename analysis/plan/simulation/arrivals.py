"""Instants of arrivals for the simulation, drawn as arrays: the processes of loadtests/harness/schedule/arrivals.py."""

from __future__ import annotations

import math

import numpy as np

from analysis.plan.engine.steps import Floats, Generator
from records.load import Rate
from settings.schema import UserMistake

SPARE = 6.0  # standard deviations of the number of arrivals, drawn beyond its mean


def variation(process: str) -> float:
    """The coefficient of variation of the gaps. Raises `UserMistake` for a process that is not known."""
    name, _, given = process.partition(":")
    try:
        cv = {"constant": 0.0, "poisson": 1.0, "gamma": float(given.partition("=")[2] or 1.0)}[name]
    except (KeyError, ValueError):
        cv = -1.0
    if cv < 0 or (given and (name != "gamma" or not given.startswith("cv=") or cv == 0)):
        raise UserMistake(f"arrivals to plan for are constant, poisson or gamma:cv=2, not `{process}`.")
    return cv


def arrival_times(load: Rate, seconds: float, rng: Generator) -> Floats:
    """Arrivals in [0, `seconds`). Raises `UserMistake` for a process that is not known."""
    return gamma_arrivals(load.per_second, variation(load.arrivals), seconds, rng)


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
