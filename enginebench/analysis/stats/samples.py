"""Two samples of runs of one metric: by how much they differ, and the p value.

Runs are the samples, because the spread from run to run is larger than the spread inside a run. Runs that are equal
within the resolution of their values show no spread. So the standard error of a difference is at least that of the
runs' own intervals, and that of one step of the resolution.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from enginebench.analysis.stats.repeats import (
    MIN_REPEATS,
    chance_error,
    ratio_test,
    t_test,
    within_run_error,
)
from enginebench.records.metrics import Column
from enginebench.records.view import NO_SAMPLES, Estimate

MAX_STEP = 0.4  # as a share of the smallest value: a larger step is not a clock's


@dataclass(frozen=True, slots=True)
class Sample:
    """A metric of an engine: an estimate for each run, and `overall`, the estimate over all runs that is displayed.
    `step` is the least difference between two unequal runs, such as one request in the window; 0 if unknown."""

    estimates: tuple[Estimate, ...]
    step: float = 0.0
    overall: Estimate = NO_SAMPLES

    @property
    def values(self) -> tuple[float, ...]:
        return tuple(estimate.value for estimate in self.estimates if estimate.value is not None)

    @property
    def complete(self) -> bool:
        """Return whether every run has the value."""
        return bool(self.estimates) and len(self.values) == len(self.estimates)


def compare(column: Column, ours: Sample, theirs: Sample, paired: bool) -> tuple[Estimate, float | None]:
    """Return the ratio of `ours` to `theirs` (for a share, the difference) with its 95 % interval, and the two-sided p.

    Both samples are complete. The ratio is +∞ or 0 if every run of one side is infinite, or 0, and no run of the other.
    """
    error = _least_error(column, ours, theirs, paired)
    if not column.relative:
        top, bottom = (np.array(side.values, dtype=np.float64) for side in (ours, theirs))
        difference, p = t_test(top, bottom, paired, min_error=error)
        return difference.clipped(-1.0, 1.0), p
    certain = _against_zero(ours.values, theirs.values)
    return (certain, None) if certain is not None else ratio_test(ours.values, theirs.values, paired, min_error=error)


def _against_zero(ours: Sequence[float], theirs: Sequence[float]) -> Estimate | None:
    """Return the ratio if all runs of one side are 0 and no run of the other is."""
    n, zeros = min(len(ours), len(theirs)), [sum(run == 0 for run in runs) for runs in (ours, theirs)]
    if n < MIN_REPEATS or zeros not in ([len(ours), 0], [0, len(theirs)]):
        return None
    ratio = 0.0 if zeros[0] else math.inf
    return Estimate(ratio, ratio, ratio, n)


def _least_error(column: Column, ours: Sample, theirs: Sample, paired: bool) -> float:
    """Return the lower bound of the standard error of the difference of the means, even if all runs are equal.

    For shares, it is the error due to chance. For other metrics, it is the larger of the error inside the runs (0 if
    paired: both sides sent the same prompts) and the error of one step.
    """
    if not column.relative:
        counts = ([estimate.n for estimate in side.estimates] for side in (ours, theirs))
        return chance_error(ours.values, theirs.values, *counts)
    inside = 0.0 if paired else math.hypot(*(within_run_error(side.estimates) for side in (ours, theirs)))
    step = max(ours.step, theirs.step)
    if column.unit == "s":
        step = max(step, _clock_step([*ours.values, *theirs.values]))
    return max(inside, step / math.sqrt(3))  # standard deviation of a uniform error of up to one step either way


def _clock_step(values: Sequence[float]) -> float:
    """Return the step of the coarse clock that made durations of several runs equal, by their smallest difference."""
    distinct = sorted({value for value in values if math.isfinite(value)})
    if len(distinct) < 2 or len(distinct) == len(values):
        return 0.0
    least = min(after - before for before, after in pairwise(distinct))
    return min(least, MAX_STEP * distinct[0])


def geometric_mean(values: Sequence[float | None]) -> float:
    """Return the geometric mean; 0 if a run has no value above zero."""
    positive = [value for value in values if value is not None and value > 0]
    return statistics.geometric_mean(positive) if positive and len(positive) == len(values) else 0.0
