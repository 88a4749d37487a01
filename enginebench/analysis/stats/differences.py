"""Two groups of runs, one value a run: how far apart they are, by how much for certain, and how large that is.

The ratio and its p value decide (repeats.py); the rest describes: Welch's and Mann–Whitney's tests, Cohen's d,
Cliff's δ, and the spread of each group with its outliers, which are flagged and stay in every number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from enginebench.analysis.arrays import Floats
from enginebench.analysis.stats.repeats import REPEATS, failed_runs, ratio_test, rounding_of, t_test
from enginebench.records.view import Estimate

OUTLIER_RUNS = 5  # of fewer, chance alone has one: of three normal values in 29 % of the cases
OUTLIER = 3.5  # modified z score above which a run is flagged: Iglewicz & Hoaglin (1993)
NORMAL = 1.4826  # standard deviations of a normal distribution in one median absolute deviation
NORMAL_MEAN = 1.2533  # and in one mean absolute deviation


@dataclass(frozen=True, slots=True)
class Spread:
    """One group of runs. `deviation` is the standard deviation, `mad` the median absolute deviation, both of runs.

    `outliers`, of five runs or more, are values further than 3.5 · 1.4826 · MAD from the median; where the MAD is 0,
    3.5 · 1.2533 times the mean absolute deviation. They are part of all the other numbers.
    """

    n: int
    mean: float
    median: float
    deviation: float | None
    mad: float | None
    least: float
    largest: float
    outliers: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTest:
    """One group of runs against another. `difference` is that of the means; `ratio` that of the geometric means, `None`
    where a value is not above zero. `p` is two-sided: of the t test on logarithms, or on the values where they may be
    zero; paired where the groups are. `None` where there was no test: `why` of the estimates says why not."""

    difference: Estimate
    ratio: Estimate
    paired: bool
    p: float | None
    welch: float | None
    mann_whitney: float | None
    cohen_d: float | None
    cliff_delta: float | None

    @property
    def failed(self) -> Literal["ours", "theirs"] | None:
        """Which group has no finite value in any run, where the other has one in every run: a percentile that lies
        among the failed requests. That group is worse, beyond chance and without a test, so `p` is `None`."""
        if self.difference.low is None or not math.isinf(self.difference.low):
            return None
        return "ours" if self.difference.low > 0 else "theirs"


def spread(runs: Sequence[float]) -> Spread:
    """Raises `ValueError` without runs."""
    values = np.asarray(runs, dtype=np.float64)
    if not len(values):
        raise ValueError("a spread needs at least one run")
    median, n = float(np.median(values)), len(values)
    if not np.isfinite(values).all():  # a percentile that falls among failed requests
        return Spread(n, math.inf, median, None, None, float(values.min()), math.inf, ())
    least, largest = float(values.min()), float(values.max())
    if least == largest:  # no rounding error of their mean, which is no deviation
        return Spread(n, least, least, 0.0 if n > 1 else None, 0.0, least, largest, ())
    apart = np.abs(values - median)
    mad = float(np.median(apart))
    far = apart > OUTLIER * (NORMAL * mad if mad > 0 else NORMAL_MEAN * float(apart.mean()))
    return Spread(
        n=n,
        mean=float(values.mean()),
        median=median,
        deviation=float(values.std(ddof=1)),
        mad=mad,
        least=least,
        largest=largest,
        outliers=tuple(values[far].tolist()) if n >= OUTLIER_RUNS else (),
    )


def compare_runs(
    ours: Sequence[float], theirs: Sequence[float], paired: bool, relative: bool, least_error: float = 0.0
) -> GroupTest:
    """`ours` minus, and over, `theirs`. `paired`: the i-th values belong to one repeat. `relative`: values are above
    zero and their ratio is what counts; else they are shares and their difference is. `least_error` as for `t_test`,
    in the unit of the values.

    With fewer than three runs in a group there are no intervals and no p values, only numbers.
    """
    one, other = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    finite = bool(np.isfinite(one).all() and np.isfinite(other).all())
    enough = min(len(one), len(other)) >= REPEATS
    ratio, p_ratio = ratio_test(ours, theirs, paired, least_error=least_error)
    difference, p_difference = _difference(one, other, paired, least_error)
    if not relative:
        difference = difference.within(-1, 1)
    return GroupTest(
        difference=difference,
        ratio=ratio,
        paired=paired,
        p=p_ratio if relative else p_difference,
        welch=_difference(one, other, False, least_error)[1] if paired else p_difference,
        mann_whitney=_mann_whitney(one, other) if enough else None,
        cohen_d=_cohen_d(one, other) if enough and finite else None,
        cliff_delta=_cliff_delta(one, other) if len(one) and len(other) else None,
    )


def _difference(ours: Floats, theirs: Floats, paired: bool, least_error: float) -> tuple[Estimate, float | None]:
    if min(len(ours), len(theirs)) == 0:
        return Estimate(None, why="no runs"), None
    failed = failed_runs(ours, theirs, when_ours=math.inf, when_theirs=-math.inf)
    return (failed, None) if failed is not None else t_test(ours, theirs, paired, least_error=least_error)


def _mann_whitney(ours: Floats, theirs: Floats) -> float:
    """Two-sided p (Mann & Whitney 1947): exact for few runs without ties. +∞ is the largest rank."""
    from scipy import stats

    return float(stats.mannwhitneyu(ours, theirs).pvalue)


def _cohen_d(ours: Floats, theirs: Floats) -> float | None:
    """Difference of the means over the pooled standard deviation (Cohen 1988)."""
    freedom = len(ours) + len(theirs) - 2
    pooled = math.sqrt(((len(ours) - 1) * ours.var(ddof=1) + (len(theirs) - 1) * theirs.var(ddof=1)) / freedom)
    spread_is_known = pooled > max(rounding_of(ours), rounding_of(theirs))
    return float((ours.mean() - theirs.mean()) / pooled) if spread_is_known else None


def _cliff_delta(ours: Floats, theirs: Floats) -> float:
    """P(ours > theirs) − P(ours < theirs), from −1 to 1 (Cliff 1993)."""
    return float((ours[:, None] > theirs).mean() - (ours[:, None] < theirs).mean())
