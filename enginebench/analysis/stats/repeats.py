"""Tests whose samples are repeated runs: two groups, pairs, and correction for many tests."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from enginebench.analysis.arrays import Floats
from enginebench.analysis.stats.student_t import t_p_value, t_quantile
from enginebench.records.quality import MAX_EXPONENT
from enginebench.records.view import NO_SAMPLES, Estimate, Missing

MIN_REPEATS = 3  # runs of each engine below which no winner is named
ROUNDING = 1e-12  # relative difference that floating point may cause between equal runs


def repeats_interval(runs: Sequence[float], min_error: float = 0.0) -> Estimate:
    """Return the mean over independent runs, one value a run, with Student's t interval; `min_error` as for `t_test`.

    Durations, rates and shares are not negative, so the lower end is not either unless a run is.
    """
    values = np.asarray(runs, dtype=np.float64)
    n = len(values)
    if n == 0:
        return NO_SAMPLES
    mean = float(values.mean())
    if n < MIN_REPEATS:
        return Estimate(mean, n=n, missing=Missing.FEW_REPEATS)
    error = _standard_error(values)
    if max(error, min_error) <= rounding_of(values):
        return Estimate(mean, n=n, missing=Missing.FEW_REPEATS)
    half = max(t_quantile(n - 1) * error, t_quantile(math.inf) * min_error)
    return Estimate(mean, max(mean - half, min(float(values.min()), 0.0)), mean + half, n)


def t_test(ours: Floats, theirs: Floats, paired: bool, min_error: float = 0.0) -> tuple[Estimate, float | None]:
    """Return the difference of the means with Student's interval of the pairs or Welch's (1947), and the two-sided p
    value.

    Like `scipy.stats.ttest_rel` and `ttest_ind`, which have no minimum error and take a millisecond each.

    `min_error` is a lower bound of the difference's standard error: the spread inside the runs (`within_run_error`), or
    chance in shares (`chance_error`). It only widens the interval and raises p. Without `min_error`, a difference that
    does not vary from run to run has no interval and, unless it is 0, no p value, because the resolution of the values
    is unknown and rounding may have separated equal values.
    """
    n = min(len(ours), len(theirs))
    difference = float(ours.mean() - theirs.mean())
    if n < MIN_REPEATS:
        return Estimate(difference, n=n, missing=Missing.FEW_REPEATS), None
    if paired:
        error, freedom = _standard_error(ours - theirs), n - 1.0
    else:
        parts = [_standard_error(group) ** 2 for group in (ours, theirs)]
        weights = sum(part**2 / (len(group) - 1) for part, group in zip(parts, (ours, theirs), strict=True))
        error, freedom = math.sqrt(sum(parts)), sum(parts) ** 2 / weights if weights > 0 else n - 1.0
    rounding = max(rounding_of(ours), rounding_of(theirs))
    if max(error, min_error) <= rounding:
        return Estimate(difference, n=n, missing=Missing.FEW_REPEATS), 1.0 if abs(difference) <= rounding else None
    half = max(t_quantile(freedom) * error, t_quantile(math.inf) * min_error)
    p = max(t_p_value(difference / e, f) for e, f in ((error, freedom), (min_error, math.inf)) if e > rounding)
    return Estimate(difference, difference - half, difference + half, n), p


def _standard_error(values: Floats) -> float:
    return float(values.std(ddof=1)) / math.sqrt(len(values))


def rounding_of(values: Floats) -> float:
    return ROUNDING * float(np.abs(values).max())


def ratio_test(
    ours: Sequence[float], theirs: Sequence[float], paired: bool, min_error: float = 0.0
) -> tuple[Estimate, float | None]:
    """Return the ratio of the geometric means of two engines' runs, one value a run, by a `t_test` of logarithms, and
    the two-sided p value of a ratio of 1.

    `paired`: the i-th values are of the same repeat (runs interleaved), so what affects both engines cancels.
    `min_error` is an error of the difference of the means, in their unit; it is divided by the smaller mean.
    If all runs of one group are +∞ (a percentile among failed requests) and no run of the other is, the ratio is
    certainly ∞, or 0, and has no p value.
    """
    top, bottom = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    n = min(len(top), len(bottom))
    if n == 0:
        return NO_SAMPLES, None
    failed = _failed_ratio(top, bottom)
    if failed is not None:
        return failed, None
    if min(top.min(), bottom.min()) <= 0:
        return Estimate(None, n=n, missing=Missing.NOT_OBSERVED), None
    relative_error = min_error / float(min(top.mean(), bottom.mean()))
    difference, p = t_test(np.log(top), np.log(bottom), paired, relative_error)
    bounds = (difference.value, difference.low, difference.high)
    value, low, high = (None if bound is None else math.exp(min(bound, MAX_EXPONENT)) for bound in bounds)
    return Estimate(value, low, high, n, difference.missing), p


def _failed_ratio(ours: Floats, theirs: Floats) -> Estimate | None:
    """Return the ratio if a value is +∞, a percentile among failed requests; `None` if all are finite."""
    n, (our_share, their_share) = min(len(ours), len(theirs)), (float(np.isinf(g).mean()) for g in (ours, theirs))
    if our_share == their_share == 0:
        return None
    if {our_share, their_share} != {0.0, 1.0}:
        return Estimate(None, n=n, missing=Missing.FAILED)
    value = math.inf if our_share else 0.0
    return Estimate(value, value, value, n) if n >= MIN_REPEATS else Estimate(value, n=n, missing=Missing.FEW_REPEATS)


def within_run_error(runs: Sequence[Estimate]) -> float:
    """Return the part of the standard error of a group's mean that comes from the spread inside its runs. For two
    groups, `min_error` is the `math.hypot` of both. A run without an interval adds nothing; if only its upper end is
    missing, the lower half counts."""
    return math.hypot(*map(_half_width, runs)) / t_quantile(math.inf) / len(runs)


def _half_width(run: Estimate) -> float:
    if run.value is None or run.low is None or run.high is None or math.isinf(run.value):
        return 0.0
    return run.value - run.low if math.isinf(run.high) else (run.high - run.low) / 2


def chance_error(
    ours: Sequence[float], theirs: Sequence[float], requests: Sequence[int], other_requests: Sequence[int]
) -> float:
    """Return the standard error of the difference of two groups' mean shares if both have the same true share. Runs
    that all have the same few failures do not show this error. `requests` has the count of each run."""
    counts = np.array([*requests, *other_requests], dtype=np.float64)
    if counts.min() <= 0:
        return 0.0
    share = float(np.average([*ours, *theirs], weights=counts))
    terms = sum(float((1 / np.array(runs)).sum()) / len(runs) ** 2 for runs in (requests, other_requests))
    return math.sqrt(max(share * (1 - share), 0.0) * terms)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Apply Holm's (1979) step-down adjustment: the k-th smallest of m p values times m − k + 1, never decreasing."""
    tested = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for k, (p, index) in enumerate(tested):
        largest = max(largest, min(1.0, p * (len(tested) - k)))
        adjusted[index] = largest
    return adjusted


def mcnemar(lost: int, gained: int) -> float:
    """Return the exact two-sided p of McNemar's (1947) test of a share before and after: of the pairs that changed,
    half would be lost by chance."""
    return min(1.0, 2 * float(special.bdtr(min(lost, gained), lost + gained, 0.5)))
