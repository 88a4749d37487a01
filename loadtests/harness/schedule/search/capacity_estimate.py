"""The estimate of capacity from all probes: the posterior mean of a logistic curve.

The share of requests that miss an objective rises with the logarithm of the load and passes α at capacity. The estimate
places probes and is reported. It certifies no load, because the curve need not be logistic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

SLOPES = tuple(2.0 * 2**k for k in range(6))
TYPICAL_SLOPE, SLOPE_SPREAD = 10.0, 1.0  # median, and sigma of the logarithm
POINTS = 41  # points of the grid
REACH, NEAR = 1.6, 0.3  # second pass: ratio of loads that the grid covers, and log distance of probes that count fully
FAR_WEIGHT = 4.0  # maximum requests that a probe farther away counts as


@dataclass(frozen=True, slots=True)
class Sample:
    """A probe's share of requests that missed one objective, and its effective sample size."""

    load: float
    missed: float
    effective: float


def crossing(samples: Sequence[Sample], alpha: float) -> float:
    """Return the load at which a share `alpha` misses the objective, from all probes and then from those nearby."""
    loads = [sample.load for sample in samples]
    rough = _mean([_weighted(s, alpha) for s in samples], alpha, min(loads), max(loads))
    near = [_weighted(s, alpha, far=abs(math.log(s.load / rough)) > NEAR) for s in samples]
    return _mean(near, alpha, rough / REACH, rough * REACH)


def _weighted(sample: Sample, alpha: float, far: bool = False) -> tuple[float, float, float]:
    """Return the logarithm of the load, good requests and bad requests. Probes beyond saturation have little weight:
    their share of bad requests depends on their duration."""
    most = FAR_WEIGHT if far or sample.missed > max(0.5, 3 * alpha) else math.inf
    effective = min(sample.effective, most)
    return math.log(sample.load), (1 - sample.missed) * effective, sample.missed * effective


def _mean(weighted: Sequence[tuple[float, float, float]], alpha: float, low: float, high: float) -> float:
    start, stop = math.log(low), math.log(high)
    grid = [start + (stop - start) * k / (POINTS - 1) for k in range(POINTS)]
    logs = [_likelihood(weighted, alpha, theta) for theta in grid]
    top = max(logs)
    masses = [math.exp(log - top) for log in logs]
    return math.exp(sum(m * x for m, x in zip(masses, grid, strict=True)) / sum(masses))


def _likelihood(weighted: Sequence[tuple[float, float, float]], alpha: float, theta: float) -> float:
    """Return the log-likelihood of a capacity, averaged over slopes, up to a constant."""
    at_capacity, terms = math.log(alpha / (1 - alpha)), []
    for slope in SLOPES:
        term = -0.5 * (math.log(slope / TYPICAL_SLOPE) / SLOPE_SPREAD) ** 2
        for x, good, bad in weighted:
            score = at_capacity + slope * (x - theta)
            soft = max(score, 0.0) + math.log1p(math.exp(-abs(score)))  # log(1 + e^score)
            term += bad * (score - soft) - good * soft
        terms.append(term)
    top = max(terms)
    return top + math.log(sum(math.exp(term - top) for term in terms))
