"""Engine against engine: the runs are the samples, and a winner needs repeats, an interval and a practical margin."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.stats.estimate import CONFIDENCE, Floats, t_p_value, t_quantile
from records.rules import MARGIN
from records.view import Estimate

REPEATS = 3  # runs of each engine below which no winner is named
SAME = 1e-12  # share of their size by which equal runs may differ: a test of rounding errors says nothing


@dataclass(frozen=True, slots=True)
class Lead:
    """The best engine's mean over another one's, and the p value of "no difference", adjusted for all the leads."""

    over: str
    ratio: Estimate  # ≥ 1; the interval is that of these two engines alone
    p: float | None  # two-sided, after Holm's correction; `None` without enough repeats


@dataclass(frozen=True, slots=True)
class Ranking:
    """Engines, best first; the winner, or why there is none; and the lead of the first over each of the others."""

    order: tuple[str, ...]
    winner: str | None
    why: str | None
    leads: tuple[Lead, ...]


def repeats_interval(runs: Sequence[float]) -> Estimate:
    """The mean over independent runs, one value a run, with Student's t interval.

    Durations, rates and shares are not negative, and so neither is the lower end where no run is.
    """
    values = np.asarray(runs, dtype=np.float64)
    n = len(values)
    if n == 0:
        return Estimate(None, why="no runs")
    mean = float(values.mean())
    if n < REPEATS:
        return Estimate(mean, n=n, why=f"{n} < {REPEATS} repeats")
    half = t_quantile(n - 1) * float(values.std(ddof=1)) / math.sqrt(n)
    return Estimate(mean, max(mean - half, min(float(values.min()), 0.0)), mean + half, n)


def ratio_interval(numerator: Sequence[float], denominator: Sequence[float], paired: bool = False) -> Estimate:
    """Ratio of the geometric means of two engines' runs, one value a run, with a t interval on the logarithm.

    `paired`: the i-th values are of the same repeat (runs interleaved), so what a repeat does to both falls out.
    Otherwise Welch's interval. The interval is that of `denominator` over `numerator` turned round.
    """
    return ratio_test(numerator, denominator, paired)[0]


def ratio_test(
    numerator: Sequence[float],
    denominator: Sequence[float],
    paired: bool,
    confidence: float = CONFIDENCE,
    least_error: float = 0.0,
) -> tuple[Estimate, float | None]:
    """The ratio, and the two-sided p value of a ratio of 1. `least_error` is that of the ratio's logarithm."""
    top, bottom = np.asarray(numerator, dtype=np.float64), np.asarray(denominator, dtype=np.float64)
    n = min(len(top), len(bottom))
    if paired and len(top) != len(bottom):
        raise ValueError("paired samples need as many runs of one engine as of the other")
    if n == 0 or not (np.isfinite(top).all() and np.isfinite(bottom).all()) or min(top.min(), bottom.min()) <= 0:
        return Estimate(None, n=n, why="a run has no value above zero"), None
    difference, p = t_test(np.log(top), np.log(bottom), paired, confidence, least_error)
    bounds = (difference.value, difference.low, difference.high)
    value, low, high = (None if bound is None else math.exp(bound) for bound in bounds)
    return Estimate(value, low, high, n, difference.why), p


def t_test(
    one: Floats, other: Floats, paired: bool, confidence: float = CONFIDENCE, least_error: float = 0.0
) -> tuple[Estimate, float | None]:
    """Difference of the means with Student's interval of the pairs or Welch's (1947), and the two-sided p value.

    `least_error` is a standard error that the difference has at least, however alike the runs are.
    """
    n = min(len(one), len(other))
    difference = float(one.mean() - other.mean())
    if n < REPEATS:
        return Estimate(difference, n=n, why=f"{n} < {REPEATS} repeats"), None
    if paired:
        error, freedom = math.sqrt(float((one - other).var(ddof=1)) / n), n - 1.0
    else:
        parts = [float(side.var(ddof=1)) / len(side) for side in (one, other)]
        weights = sum(part**2 / (len(side) - 1) for part, side in zip(parts, (one, other), strict=True))
        error, freedom = math.sqrt(sum(parts)), sum(parts) ** 2 / weights if weights > 0 else n - 1.0
    if max(error, least_error) <= SAME * float(max(np.abs(one).max(), np.abs(other).max())):
        return Estimate(difference, difference, difference, n), float(difference == 0)
    # The floor never makes an interval narrower: a few runs may be alike by chance, and Student's t knows that.
    halves, ps = [t_quantile(math.inf, confidence) * least_error], []
    if error > 0:
        halves.append(t_quantile(freedom, confidence) * error)
        ps.append(t_p_value(difference / error, freedom))
    if least_error > 0:
        ps.append(t_p_value(difference / least_error, math.inf))
    half, p = max(halves), max(ps)
    return Estimate(difference, difference - half, difference + half, n), p


def chance_error(
    one: Sequence[float], other: Sequence[float], requests: Sequence[int], other_requests: Sequence[int]
) -> float:
    """Standard error of the difference of the mean shares of two groups of runs that chance alone makes, where both
    have one true share: runs with the same few failures do not show it. `requests` are those of each run."""
    counts = np.array([*requests, *other_requests], dtype=np.float64)
    if counts.min() <= 0:
        return 0.0
    share = float(np.average([*one, *other], weights=counts))
    terms = sum(float((1 / np.array(runs)).sum()) / len(runs) ** 2 for runs in (requests, other_requests))
    return math.sqrt(max(share * (1 - share), 0.0) * terms)


def winner(samples_by_engine: Mapping[str, Sequence[float]], margin: float = MARGIN, paired: bool = False) -> Ranking:
    """Which engine won, if any: better than each other one by at least `margin`, significantly after Holm's (1979)
    correction, from at least `REPEATS` runs each.

    One value a run, higher is better. `paired`: the i-th runs of all engines belong to one repeat.

    The tests are those of the best engine against each other one. Pairs of others need no correction: whatever they
    are like, a false winner has to beat the engine that is truly as good (an intersection-union test, Berger 1982).
    """
    geometric = {name: _geometric_mean(runs) for name, runs in samples_by_engine.items()}
    order = tuple(sorted(geometric, key=lambda name: geometric[name], reverse=True))
    tests = [ratio_test(samples_by_engine[order[0]], samples_by_engine[other], paired) for other in order[1:]]
    adjusted = holm([p for _, p in tests])
    leads = tuple(Lead(other, ratio, p) for other, (ratio, _), p in zip(order[1:], tests, adjusted, strict=True))
    why = _why_no_winner(leads, margin)
    return Ranking(order, None if why else order[0], why, leads)


def _geometric_mean(runs: Sequence[float]) -> float:
    values = np.asarray(runs, dtype=np.float64)
    return float(np.exp(np.log(values).mean())) if len(values) and values.min() > 0 else 0.0


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's (1979) step-down adjustment: the k-th smallest of m p values times m − k + 1, never decreasing."""
    tested = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for k, (p, index) in enumerate(tested):
        largest = max(largest, min(1.0, p * (len(tested) - k)))
        adjusted[index] = largest
    return adjusted


def _why_no_winner(leads: Sequence[Lead], margin: float) -> str | None:
    if not leads:
        return "there is only one engine"
    for lead in leads:
        if lead.p is None or lead.ratio.value is None:
            return lead.ratio.why
        if lead.p > 1 - CONFIDENCE:
            beyond_chance_by_itself = len(leads) > 1 and lead.ratio.low is not None and lead.ratio.low > 1
            among = f"among {len(leads) + 1} engines, " if beyond_chance_by_itself else ""
            return f"{among}the difference to {lead.over} may be chance"
        if lead.ratio.value < margin:
            return f"the ratio to {lead.over} is below the practical margin of {margin:g}"
    return None
