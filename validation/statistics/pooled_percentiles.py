"""How often the intervals of percentiles over several runs are right, if the speed differs from run to run.

Latencies are lognormal with a standard deviation of 0.5 of the logarithm; the speeds of runs are lognormal too. The
true value is the percentile over infinitely many runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from statistics import NormalDist

import numpy as np

from enginebench.analysis.stats.intervals import percentile_intervals
from enginebench.analysis.stats.pooled_percentile import packed, pooled_percentile
from enginebench.records.metrics import PERCENTILES
from enginebench.records.view import Distribution
from validation.statistics.systems import Floats, Generator

SPREAD = 0.5  # standard deviation of the logarithm of latencies inside a run
GRID = tuple(product((3, 5, 8), (60, 400), (0.0, 0.05, 0.3), (0.0, 0.8)))


@dataclass(frozen=True, slots=True)
class Cell:
    """The intervals over `samples` samples of `runs` runs: `shown` is the share with an interval, `coverage` the share
    of these that contain the true value, `ratio` the median of upper end ÷ lower end. `spread` is that of the speed,
    `rho` the correlation of successive requests."""

    percentile: str
    runs: int
    requests: int  # per run
    spread: float
    rho: float
    samples: int
    shown: float
    coverage: float | None
    ratio: float | None


def latencies(rng: Generator, requests: int, spread: float, rho: float) -> Floats:
    normal = rng.standard_normal(requests)
    for at in range(1, requests if rho else 0):
        normal[at] = rho * normal[at - 1] + math.sqrt(1 - rho**2) * normal[at]
    return np.asarray(np.exp(SPREAD * normal + spread * rng.standard_normal()))


def distribution(values: Floats) -> Distribution:
    estimates = percentile_intervals(values, tuple(PERCENTILES.values()))
    percentiles = dict(zip(PERCENTILES, estimates, strict=True))
    return Distribution(len(values), 0, None, None, None, None, percentiles, ended=packed(np.sort(values)))


def measure(samples: int, seed: int) -> list[Cell]:
    cells = []
    for index, (runs, requests, spread, rho) in enumerate(GRID):
        rng = np.random.default_rng([seed, index])
        drawn = [[distribution(latencies(rng, requests, spread, rho)) for _ in range(runs)] for _ in range(samples)]
        for name, q in PERCENTILES.items():
            truth = math.exp(math.hypot(SPREAD, spread) * NormalDist().inv_cdf(q))
            estimates = [pooled_percentile(sample, name) for sample in drawn]
            intervals = [
                (estimate.low, estimate.high)
                for estimate in estimates
                if estimate.low is not None and estimate.high is not None
            ]
            held = float(np.mean([low <= truth <= high for low, high in intervals])) if intervals else None
            ratio = float(np.median([high / low for low, high in intervals])) if intervals else None
            cell = Cell(name, runs, requests, spread, rho, samples, len(intervals) / samples, held, ratio)
            cells.append(cell)
    return cells
