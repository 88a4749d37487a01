"""Where the capacity probably lies, from all probes so far: the posterior of a psychometric curve.

The share of requests that miss an objective rises with the logarithm of the load, logistically, and passes 1 - q at
capacity θ. θ and the slope are inferred on a grid by Bayes' rule, each probe weighted by its effective number of
requests (as thresholds are in psychophysics: King-Smith et al. 1994; Watson 2017). It places probes and gives the
estimate; what is certified rests on the confidence sequences alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

POINTS = 41  # of the grid, twice: over all loads, and where the posterior lies
SPREADS = 5.0  # standard deviations to either side that the second grid covers
SLOPES = tuple(2.0 * 2**k for k in range(6))  # 2 to 64
TYPICAL_SLOPE, SLOPE_SPREAD = 10.0, 1.0  # median and sigma of the logarithm
NEAR = 0.25  # in the logarithm of the load: probes further away count less, the curve is not logistic over decades
FAR_WEIGHT = 4.0  # effective requests that such a probe counts as


@dataclass(frozen=True, slots=True)
class Sample:
    """One probe's share of one objective: effective numbers of good and bad requests at a load."""

    load: float
    good: float
    bad: float


@dataclass(frozen=True, slots=True)
class Location:
    """The posterior of capacity: median, and the standard deviation of its logarithm."""

    load: float
    spread: float


def locate(samples: Sequence[Sample], q: float, low: float, high: float) -> Location:
    """`low` and `high` bound where capacity is looked for."""
    start, stop = math.log(low), math.log(high)
    rough = _crossing(samples, q, start, stop)
    weighted = [(math.log(each.load), *_weighted(each, rough, q)) for each in samples]
    for _ in range(2):
        grid = [start + (stop - start) * k / (POINTS - 1) for k in range(POINTS)]
        masses = _posterior(weighted, q, grid)
        total = sum(masses)
        mean = sum(m * x for m, x in zip(masses, grid, strict=True)) / total
        spread = math.sqrt(sum(m * (x - mean) ** 2 for m, x in zip(masses, grid, strict=True)) / total)
        reach = SPREADS * max(spread, grid[1] - grid[0])
        start, stop = max(start, mean - reach), min(stop, mean + reach)
    return Location(math.exp(_median(grid, masses)), spread)


def _posterior(weighted: Sequence[tuple[float, float, float]], q: float, grid: Sequence[float]) -> list[float]:
    """Likelihood of each θ of the grid, averaged over slopes, up to a factor. `weighted`: logarithm of the load, good,
    bad."""
    at_capacity = math.log((1 - q) / q)
    prior = [-0.5 * (math.log(slope / TYPICAL_SLOPE) / SLOPE_SPREAD) ** 2 for slope in SLOPES]
    logs = []
    for theta in grid:
        terms = []
        for slope, weight in zip(SLOPES, prior, strict=True):
            for x, good, bad in weighted:
                score = at_capacity + slope * (x - theta)
                # log(1 + e^score), without overflow
                soft = max(score, 0.0) + math.log1p(math.exp(-abs(score)))
                weight += bad * (score - soft) - good * soft
            terms.append(weight)
        top = max(terms)
        logs.append(top + math.log(sum(math.exp(term - top) for term in terms)))
    top = max(logs)
    return [math.exp(each - top) for each in logs]


def _weighted(sample: Sample, rough: float, q: float) -> tuple[float, float]:
    total = sample.good + sample.bad
    distance = abs(math.log(sample.load) - rough)
    most = math.inf if distance <= NEAR else FAR_WEIGHT
    if total and sample.bad / total > max(0.5, 3 * (1 - q)):
        most = min(most, FAR_WEIGHT)  # beyond saturation the share depends on how long the probe lasted
    scale = min(1.0, most / total) if total else 0.0
    return sample.good * scale, sample.bad * scale


def _crossing(samples: Sequence[Sample], q: float, start: float, stop: float) -> float:
    """Logarithm of the load halfway between the highest that looks good and the lowest above it that does not."""
    good = [math.log(s.load) for s in samples if s.good >= q * (s.good + s.bad)]
    below = max(good, default=start)
    above = min((math.log(s.load) for s in samples if s.good < q * (s.good + s.bad)), default=stop)
    return (below + above) / 2


def _median(grid: Sequence[float], masses: Sequence[float]) -> float:
    half, reached = sum(masses) / 2, 0.0
    for x, mass in zip(grid, masses, strict=True):
        reached += mass
        if reached >= half:
            return x
    raise AssertionError("the masses add up to their sum")
