"""Two groups of runs, one value a run: how far apart they are, by how much for certain, and how large that is.

The ratio and its p value decide (repeats.py); the rest describes: Welch's and Mann–Whitney's tests, Cohen's d,
Cliff's δ, and the spread of each group with its outliers, which are flagged and stay in every number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from analysis.stats.estimate import Floats
from analysis.stats.repeats import REPEATS, ratio_test, t_test
from analysis.stats.series import ranks_of
from records.view import Estimate

OUTLIER = 3.5  # modified z score above which a run is flagged: Iglewicz & Hoaglin (1993)
NORMAL = 1.4826  # standard deviations of a normal distribution in one median absolute deviation
NORMAL_MEAN = 1.2533  # and in one mean absolute deviation
EXACT = 8  # runs of the smaller group, up to which the distribution of U is counted out


@dataclass(frozen=True, slots=True)
class Spread:
    """One group of runs. `deviation` is the standard deviation, `mad` the median absolute deviation, both of runs.

    `outliers` are values further than 3.5 · 1.4826 · MAD from the median; where the MAD is 0, 3.5 · 1.2533 times the
    mean absolute deviation. They are part of all the other numbers.
    """

    n: int
    mean: float
    median: float
    deviation: float | None
    mad: float | None
    least: float
    largest: float
    outliers: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """One group of runs against another. `difference` is that of the means; `ratio` that of the geometric means, `None`
    where a value is not above zero. `p` is two-sided: of the t test on logarithms, or on the values where they may be
    zero; paired where the groups are."""

    difference: Estimate
    ratio: Estimate
    paired: bool
    p: float | None
    welch: float | None
    mann_whitney: float | None
    cohen_d: float | None
    cliff_delta: float | None


def spread(runs: Sequence[float]) -> Spread:
    """Raises `ValueError` without runs."""
    values = np.asarray(runs, dtype=np.float64)
    if not len(values):
        raise ValueError("a spread needs at least one run")
    median, n = float(np.median(values)), len(values)
    if not np.isfinite(values).all():  # a percentile that falls among failed requests
        return Spread(n, math.inf, median, None, None, float(values.min()), math.inf, ())
    apart = np.abs(values - median)
    mad = float(np.median(apart))
    far = apart > OUTLIER * (NORMAL * mad if mad > 0 else NORMAL_MEAN * float(apart.mean()))
    return Spread(
        n=n,
        mean=float(values.mean()),
        median=median,
        deviation=float(values.std(ddof=1)) if n > 1 else None,
        mad=mad,
        least=float(values.min()),
        largest=float(values.max()),
        outliers=tuple(values[far].tolist()) if n >= REPEATS else (),
    )


def compare_runs(
    ours: Sequence[float], theirs: Sequence[float], paired: bool, relative: bool, least_error: float = 0.0
) -> Difference:
    """`ours` minus, and over, `theirs`. `paired`: the i-th values belong to one repeat. `relative`: values are above
    zero and their ratio is what counts; else they are shares and their difference is, with `least_error` as for
    `t_test`.

    With fewer than three runs in a group there are no intervals and no p values, only numbers.
    """
    one, other = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    enough = min(len(one), len(other)) >= REPEATS and bool(np.isfinite(one).all() and np.isfinite(other).all())
    # Two sides with the same relative error r differ by an error of r · √(ā² + b̄²), and their ratio's is r · √2.
    size = math.sqrt((float(one.mean()) ** 2 + float(other.mean()) ** 2) / 2) if len(one) and len(other) else 0.0
    relative_error = least_error / size if size and math.isfinite(size) else 0.0
    ratio, p_ratio = ratio_test(ours, theirs, paired, least_error=relative_error)
    difference, p_difference = _difference(one, other, paired, least_error)
    if not relative:
        difference = difference.within(-1, 1)
    return Difference(
        difference=difference,
        ratio=ratio,
        paired=paired,
        p=p_ratio if relative else p_difference,
        welch=_difference(one, other, False, least_error)[1],
        mann_whitney=_mann_whitney(one, other) if enough else None,
        cohen_d=_cohen_d(one, other) if enough else None,
        cliff_delta=_cliff_delta(one, other) if len(one) and len(other) else None,
    )


def _difference(one: Floats, other: Floats, paired: bool, least_error: float) -> tuple[Estimate, float | None]:
    n = min(len(one), len(other))
    if n == 0 or not (np.isfinite(one).all() and np.isfinite(other).all()):
        return Estimate(None, n=n, why="no runs" if n == 0 else "a run has no finite value"), None
    return t_test(one, other, paired, least_error=least_error)


def _mann_whitney(one: Floats, other: Floats) -> float:
    """Two-sided p (Mann & Whitney 1947): exact for few runs without ties, else by the normal approximation with
    corrections for continuity and ties. As `scipy.stats.mannwhitneyu`, whose import takes a second."""
    n, m = len(one), len(other)
    both = np.concatenate([one, other])
    below = float(ranks_of(both)[:n].sum()) - n * (n + 1) / 2
    u = max(below, n * m - below)
    ties = np.unique(both, return_counts=True)[1].astype(np.float64)
    if min(n, m) <= EXACT and ties.max() == 1:
        ways = _ways(n, m)
        return min(2 * float(ways[round(u) :].sum() / ways.sum()), 1.0)
    tied = float((ties**3 - ties).sum()) / ((n + m) * (n + m - 1))
    deviation = math.sqrt(n * m / 12 * (n + m + 1 - tied))
    return min(2 * float(special.ndtr((n * m / 2 + 0.5 - u) / deviation)), 1.0) if deviation > 0 else 1.0


def _ways(n: int, m: int) -> Floats:
    """In how many orders of both groups U is 0, 1, …, n·m: the coefficients of the Gaussian binomial."""
    ways = np.zeros(n * m + 1)
    ways[0] = 1
    for k in range(1, n + 1):
        ways[m + k :] -= ways[: -(m + k)].copy()
        for at in range(k, len(ways)):
            ways[at] += ways[at - k]
    return ways


def _cohen_d(one: Floats, other: Floats) -> float | None:
    """Difference of the means over the pooled standard deviation (Cohen 1988)."""
    freedom = len(one) + len(other) - 2
    pooled = math.sqrt(((len(one) - 1) * one.var(ddof=1) + (len(other) - 1) * other.var(ddof=1)) / freedom)
    return float((one.mean() - other.mean()) / pooled) if pooled > 0 else None


def _cliff_delta(one: Floats, other: Floats) -> float:
    """P(one > other) − P(one < other), from −1 to 1 (Cliff 1993)."""
    return float((one[:, None] > other).mean() - (one[:, None] < other).mean())
