"""Throughput against load, without a model of the engine: the Universal Scalability Law (Gunther 2007), with its bands.

X(N) = λN / (1 + σ(N − 1) + κN(N − 1)): σ is the share of work that requests wait for one another, κ what each pair of
them costs. N is the time-average of requests in flight.

The bands are a parametric bootstrap. Each draw sets the stages' throughputs anew, around the fitted law: by their
intervals, which come from batches of each stage's window, and by the scatter of stages about the law beyond those
intervals. The scatter is drawn too: few residuals leave its size open, and the bands get the width of Student's t. The
law is fitted to every draw. NumPy alone: a report draws these bands, and `scipy.optimize` takes longer to import than
they take to compute.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

import numpy as np

from enginebench.analysis.arrays import Floats
from enginebench.analysis.plan.steps import Generator
from enginebench.records.formatting import format_estimate, format_share, significant
from enginebench.records.rules import nearest_rank
from enginebench.records.view import Estimate

DRAWS = 1000
NORMAL = 1.96  # standard errors to either side hold 95 %
ENDS = (0.025, 0.975)
LEAST_STAGES = 3
POINTS = 40  # of the curve
POOR_FIT = 0.25  # scatter of the stages about the law, as a share, from which on it says nothing
SAME = 0.005  # share by which two throughputs are the same to three digits
NEGLIGIBLE = 1e-9  # κ that is only rounding
LEAST_FREEDOM = 2  # of the residuals, that they tell how far stages scatter about the law
ASSUMED = 0.03  # scatter that is assumed at least where they have fewer: that of repeated runs


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """What was measured at one load: tokens per second, with so many requests in flight on average."""

    label: str
    in_flight: float
    throughput: Estimate


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The law's tokens per second with so many requests in flight."""

    in_flight: float
    throughput: Estimate


@dataclass(frozen=True, slots=True)
class Scalability:
    """`rate` is λ, tokens per second of one request alone; `peak` the number in flight with the highest throughput, +∞
    where it only levels off; `most` that throughput, or the limit that it approaches. `curve` ends at the largest
    measured number in flight, and `measured` is the load with the highest throughput, as a mean over its repeats.
    `scatter` is the standard deviation of stages about the law, as a share; `None` where there are no more loads than
    parameters."""

    rate: Estimate
    contention: Estimate  # σ
    coherency: Estimate  # κ
    peak: Estimate
    most: Estimate
    curve: tuple[CurvePoint, ...]
    scatter: float | None
    measured: LoadPoint

    @property
    def sentence(self) -> str:
        """What was measured, and what the law says, which is fitted and may lie above all that was measured.

        Without a full stop.
        """
        best, law = self.measured, f"USL: σ {_written(self.contention)}, κ {_written(self.coherency)}"
        seen = f"{significant(best.throughput.value or 0.0)} tokens/s measured at most, at {best.label}"
        scatter = "" if self.scatter is None else f"; stages scatter by {format_share(self.scatter)} about it"
        if math.isinf(self.most.value or math.inf):
            return f"{seen}; the fitted law has no maximum ({law}{scatter})"
        if self.scatter is not None and self.scatter > POOR_FIT:
            return f"{seen}; no law fits: stages scatter by {format_share(self.scatter)} about the best one"
        where = f"with {_written(self.peak)} in flight" if math.isfinite(self.peak.value or math.inf) else "at any load"
        most = self.most.value or 0.0
        beyond = ", more than was measured," if most > (1 + SAME) * (best.throughput.value or 0.0) else ""
        return f"{seen}; the fitted law reaches {_written(self.most)} tokens/s{beyond} {where} ({law}{scatter})"


def _written(estimate: Estimate) -> str:
    return format_estimate(estimate.value or 0.0, estimate.finite.low, estimate.finite.high)


def scalability(points: Sequence[LoadPoint]) -> Scalability | None:
    """`None` with fewer than three loads."""
    known = [point for point in points if point.throughput.value and point.in_flight > 0]
    return fit_law(known) if len({round(point.in_flight, 1) for point in known}) >= LEAST_STAGES else None


def fit_law(points: Sequence[LoadPoint], seed: int = 0) -> Scalability:
    """The law through throughputs that were measured with three different numbers of requests in flight or more."""
    rng = np.random.default_rng(seed)
    n, measured = np.array([point.in_flight for point in points]), [point.throughput for point in points]
    values = np.array([estimate.value for estimate in measured], dtype=np.float64)
    law = fitted(n, values[None])
    expected = throughput(law, n)[0]
    relative = np.column_stack([draws(estimate, rng, DRAWS) for estimate in measured]) / values - 1
    extra, scatter = _scatter(relative, values / expected - 1, len(values) - int(np.count_nonzero(law)), rng)
    noise = relative + extra[:, None] * rng.standard_normal(relative.shape)
    drawn = fitted(n, expected * np.maximum(1 + noise, 0.01))
    places = np.linspace(min(1.0, float(n.max())), float(n.max()), POINTS)
    band = _estimates(throughput(law, places), throughput(drawn, places), len(values))
    curve = tuple(CurvePoint(*point) for point in zip(places.tolist(), band, strict=True))
    rate, sigma, kappa = _estimates(law, drawn, len(values))
    peak, most = _estimates(_peak(law), _peak(drawn), len(values))
    highest = max(_over_repeats(points), key=lambda point: point.throughput.value or 0.0)
    return Scalability(rate, sigma, kappa, peak, most, curve, scatter, highest)


def _over_repeats(points: Sequence[LoadPoint]) -> list[LoadPoint]:
    """A point for each load: what was measured once as it is, and else means, whose intervals are not known here."""
    loads: dict[str, list[LoadPoint]] = {}
    for point in points:
        loads.setdefault(point.label, []).append(point)
    return [same[0] if len(same) == 1 else _mean(same) for same in loads.values()]


def _mean(same: Sequence[LoadPoint]) -> LoadPoint:
    mean = Estimate(fmean(point.throughput.value or 0.0 for point in same), n=len(same))
    return LoadPoint(same[0].label, fmean(point.in_flight for point in same), mean)


def throughput(laws: Floats, n: Floats) -> Floats:
    """Tokens per second: a row for each law (λ, σ, κ), a column for each number in flight."""
    rate, sigma, kappa = (laws[:, k, None] for k in range(3))
    expected: Floats = rate * n / (1 + sigma * (n - 1) + kappa * n * (n - 1))
    return expected


def fitted(n: Floats, values: Floats) -> Floats:
    """λ, σ and κ for each row of throughputs, by least squares of relative errors.

    N/X = u + vN + wN(N − 1) is linear in what is sought, and u, v, w ≥ 0 keep σ = v/(u + v) between 0 and 1. The
    optimum under these bounds is the best of the unbounded optima over subsets of the columns that lie within them.
    """
    columns = np.column_stack([np.ones(len(n)), n, n * (n - 1)])
    rows = columns * (np.maximum(values, 1e-9) / n)[:, :, None]
    scale = np.abs(rows).max(axis=1, keepdims=True)
    rows = rows / scale
    best, least = np.zeros((len(values), 3)), np.full(len(values), math.inf)
    for chosen in (list(some) for count in (1, 2, 3) for some in combinations(range(3), count)):
        part = rows[:, :, chosen]
        turned = part.transpose(0, 2, 1)
        solution = np.linalg.solve(turned @ part, turned.sum(axis=2, keepdims=True))
        error = ((part @ solution)[:, :, 0] - 1) ** 2
        better = (solution[:, :, 0] >= 0).all(axis=1) & (error.sum(axis=1) < least)
        whole = np.zeros_like(best)
        whole[:, chosen] = solution[:, :, 0]
        best[better], least[better] = whole[better], error.sum(axis=1)[better]
    own, shared, pairs = (best / scale[:, 0]).T
    alone = np.maximum(own + shared, 1e-12)
    pairs = np.where(pairs / alone > NEGLIGIBLE, pairs / alone, 0.0)
    return np.column_stack([1 / alone, shared / alone, pairs])


def _peak(laws: Floats) -> Floats:
    """Where and how high the peak of each law is; +∞ and the limit where there is none."""
    rate, sigma, kappa = laws.T
    with np.errstate(divide="ignore", invalid="ignore"):
        where = np.where(kappa > 0, np.maximum(np.sqrt(np.maximum(1 - sigma, 0.0) / kappa), 1.0), math.inf)
        limit = np.where(sigma > 0, rate / sigma, math.inf)
    finite = np.isfinite(where)
    high = throughput(laws, np.where(finite, where, 1.0)[:, None])[:, 0]
    return np.column_stack([where, np.where(finite, high, limit)])


def _scatter(relative: Floats, residuals: Floats, freedom: int, rng: Generator) -> tuple[Floats, float | None]:
    """What to add to the stages' own errors in each draw, as a standard deviation, and the residuals' own one.

    The variance of stages about the law is drawn from its posterior given the residuals, a scaled inverse χ² (Gelman et
    al. 2013, section 3.2), and is never below that of the stages' own errors. With fewer than `LEAST_FREEDOM` degrees
    of freedom it is the assumed one, or what the residuals show where that is more.
    """
    own, squares = float((relative**2).mean()), float((residuals**2).sum())
    seen = math.sqrt(squares / freedom) if freedom > 0 else None
    if freedom < LEAST_FREEDOM:
        return np.full(len(relative), math.sqrt(max((seen or 0.0) ** 2 - own, ASSUMED**2))), seen
    drawn = squares / rng.chisquare(freedom, len(relative))
    return np.sqrt(np.maximum(drawn - own, 0.0)), seen


def draws(estimate: Estimate, rng: Generator, count: int) -> Floats:
    """Values that the number may as well have had: its interval's halves as those of two normal distributions."""
    value, z = estimate.value or 0.0, rng.standard_normal(count)
    if estimate.low is None or estimate.high is None:
        return np.full(count, value)
    return value + z * np.where(z > 0, estimate.high - value, value - estimate.low) / NORMAL


def _estimates(values: Floats, drawn: Floats, n: int) -> list[Estimate]:
    """For each column: the only row of `values`, between the ends of what was drawn."""
    ascending = np.sort(drawn, axis=0)
    lows, highs = (ascending[nearest_rank(len(ascending), q) - 1] for q in ENDS)
    ends = zip(values[0].tolist(), lows.tolist(), highs.tolist(), strict=True)
    return [Estimate(value, min(low, value), max(high, value), n) for value, low, high in ends]
