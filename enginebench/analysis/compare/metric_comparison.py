"""One metric of one engine against another's, a value a run: the comparison behind winner, tables, costs and gates.

The runs are the samples, because what differs from run to run is larger than what differs inside one. Their spread is a
poor measure of error where runs are equal by the resolution of a number: the error of a difference is therefore at
least what the runs themselves say of theirs, and what one step of a coarse number makes of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise

from enginebench.analysis.compare.engine_runs import EngineRuns
from enginebench.analysis.compare.prompts import PromptPairs
from enginebench.analysis.stats.differences import GroupTest, Spread, compare_runs, spread
from enginebench.analysis.stats.repeats import REPEATS, chance_error, holm, within_run_error
from enginebench.records.formatting import in_words
from enginebench.records.metrics import Column, Quantity
from enginebench.records.rules import Claim, claim_of, opposite
from enginebench.records.view import Estimate

COARSEST = 0.4  # of the smallest value: a step that a clock is thought to have at most
SECONDS = "s"


@dataclass(frozen=True, slots=True)
class Sample:
    """A metric of one engine at one stage: an estimate for each run. `step` is the least by which two runs can differ,
    such as one request more in the window; 0 where it is unknown."""

    engine: str
    estimates: tuple[Estimate, ...]
    step: float = 0.0

    @property
    def values(self) -> tuple[float, ...]:
        return tuple(estimate.value for estimate in self.estimates if estimate.value is not None)

    @property
    def complete(self) -> bool:
        """Whether every run has the value."""
        return bool(self.estimates) and len(self.values) == len(self.estimates)


def sample_of(engine: EngineRuns, stage: str, column: Column) -> Sample:
    views = engine.at(stage)
    estimates = tuple(view.estimate(column.name, column.statistic) for view in views)
    counted = isinstance(column.of, Quantity) and column.relative
    requests = sum(view.requests for view in views) / len(views) if views else 0.0
    known = [abs(estimate.value) for estimate in estimates if estimate.value is not None]
    return Sample(engine.label, estimates, sum(known) / len(known) / requests if counted and known and requests else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricComparison(GroupTest):
    """`difference` is engine minus the other, in the metric's unit. `ratio` is turned so that above 1 the engine is
    better: 3 is a third of the latency, or three times the throughput. It is +∞ where every run of the other fell among
    failures and none of the engine's, and 0 the other way round.

    `runs` are the values of the engine's runs, and of the other's; `least_error` is the standard error that the
    difference of their means has at least. `failed_runs` are those whose value fell among failures: a latency of +∞, a
    throughput of 0.

    `p` is two-sided, and after `corrected` that of a whole family of tests; `welch` and `mann_whitney` are each by
    itself. `why`: the verdict is neither better nor worse.
    """

    stage: str
    engine: str
    over: str
    column: Column
    runs: tuple[tuple[float, ...], tuple[float, ...]]
    least_error: float
    ours: Spread
    theirs: Spread
    failed_runs: tuple[int, int] = (0, 0)
    by_prompt: PromptPairs | None = None
    verdict: Claim = "not shown"
    why: str | None = None

    @property
    def constant(self) -> bool:
        """The same number in every run of both: nothing to test."""
        return self.ours.least == self.ours.largest == self.theirs.least == self.theirs.largest

    @property
    def worse(self) -> Estimate:
        """By how much the engine is worse, as a share of the other's value: 0.25 is 1.25 times the latency, or 0.75
        times the throughput; negative is better. Of a share in points."""
        lower_is_better = self.column.better == "lower"
        if self.column.relative and self.ratio.value is not None:
            return self.ratio.inverse.shifted(-1) if lower_is_better else self.ratio.shifted(-1).scaled(-1)
        if self.column.relative:
            return Estimate(None, n=self.ratio.n, why=self.ratio.why)
        return self.difference.scaled(1 if lower_is_better else -1)

    @property
    def reversed(self) -> MetricComparison:
        """The other against the engine: the same test, turned round."""
        return replace(
            self,
            engine=self.over,
            over=self.engine,
            runs=self.runs[::-1],
            ours=self.theirs,
            theirs=self.ours,
            difference=self.difference.scaled(-1),
            ratio=self.ratio.inverse,
            failed_runs=self.failed_runs[::-1],
            cohen_d=None if self.cohen_d is None else -self.cohen_d,
            cliff_delta=None if self.cliff_delta is None else -self.cliff_delta,
            by_prompt=None if self.by_prompt is None else self.by_prompt.reversed,
            verdict=opposite(self.verdict),
        )


def compare_metric(stage: str, column: Column, ours: Sample, theirs: Sample, paired: bool) -> MetricComparison | None:
    """Not yet corrected or judged. `None` where a run lacks the value."""
    if not (ours.complete and theirs.complete):
        return None
    least_error = _least_error(column, ours, theirs, paired)
    test = compare_runs(ours.values, theirs.values, paired, column.relative, least_error)
    ratio = (_against_nothing(ours.values, theirs.values) if column.relative else None) or test.ratio
    failed = _failed_runs(column, ours), _failed_runs(column, theirs)
    if ratio.value is None and any(failed):
        ratio = replace(ratio, why=_failures_text((ours, theirs), failed))
    tested = {field.name: getattr(test, field.name) for field in fields(test)}
    return MetricComparison(
        **tested | {"ratio": ratio.inverse if column.better == "lower" else ratio},
        stage=stage,
        engine=ours.engine,
        over=theirs.engine,
        column=column,
        runs=(ours.values, theirs.values),
        least_error=least_error,
        ours=spread(ours.values),
        theirs=spread(theirs.values),
        failed_runs=failed,
    )


def _failed_runs(column: Column, sample: Sample) -> int:
    """A latency that falls among failed requests is +∞; where all fail, nothing is served."""
    return sum(value == (math.inf if column.better == "lower" else 0.0) for value in sample.values if column.relative)


def _failures_text(sides: Sequence[Sample], failed: Sequence[int]) -> str:
    """`fell among failures in 2 of 5 runs of a`"""
    parts = [f"{n} of {len(s.values)} runs of {s.engine}" for s, n in zip(sides, failed, strict=True) if n]
    return f"it fell among failures in {in_words(parts)}"


def _against_nothing(ours: Sequence[float], theirs: Sequence[float]) -> Estimate | None:
    """The ratio where all runs of one side are 0 and no run of the other is: as certain as that of failed runs."""
    n, zeros = min(len(ours), len(theirs)), [sum(run == 0 for run in runs) for runs in (ours, theirs)]
    if n < REPEATS or zeros not in ([len(ours), 0], [0, len(theirs)]):
        return None
    ratio = 0.0 if zeros[0] else math.inf
    return Estimate(ratio, ratio, ratio, n)


def _least_error(column: Column, ours: Sample, theirs: Sample, paired: bool) -> float:
    """A standard error that the difference of the means has at least, however alike the runs are.

    Of shares it is what chance makes of so many requests. Otherwise it is the error inside the runs by their own
    intervals, which pairs of the same prompts share and so do not have, or what one step more or less makes, whichever
    is larger.
    """
    if not column.relative:
        counts = ([estimate.n for estimate in side.estimates] for side in (ours, theirs))
        return chance_error(ours.values, theirs.values, *counts)
    inside = 0.0 if paired else math.hypot(*(within_run_error(side.estimates) for side in (ours, theirs)))
    step = max(ours.step, theirs.step)
    if column.unit == SECONDS:
        step = max(step, _clock_step([*ours.values, *theirs.values]))
    return max(inside, step / math.sqrt(3))  # the standard deviation of anything up to a step to either side


def _clock_step(values: Sequence[float]) -> float:
    """Durations that are equal in several runs were rounded by a coarse clock: its step, by the smallest difference."""
    distinct = sorted({value for value in values if math.isfinite(value)})
    if len(distinct) < 2 or len(distinct) == len(values):
        return 0.0
    least = min(after - before for before, after in pairwise(distinct))
    return min(least, COARSEST * distinct[0])


def corrected(comparisons: Sequence[MetricComparison], first: str | None = None) -> list[MetricComparison]:
    """With p values after Holm's (1979) correction over all comparisons; those of the metric `first` are a family of
    their own. What is the same number in every run is no test."""
    adjusted = [replace(each, p=1.0 if each.p is not None and each.constant else each.p) for each in comparisons]
    for is_first in (True, False):
        family = [
            index
            for index, each in enumerate(comparisons)
            if (each.column.key == first) is is_first and not each.constant
        ]
        for index, p in zip(family, holm([comparisons[index].p for index in family]), strict=True):
            adjusted[index] = replace(adjusted[index], p=p)
    return adjusted


def judged(comparison: MetricComparison, margin: float, why_not: str | None = None) -> MetricComparison:
    """With the verdict, which is the same in both directions; of a share the margin is one of points. `why_not` says
    why nothing may be claimed."""
    if why_not is not None:
        return replace(comparison, verdict="not shown", why=why_not)
    repeats = min(comparison.ours.n, comparison.theirs.n)
    if comparison.constant and repeats >= REPEATS and math.isfinite(comparison.ours.mean):
        return replace(comparison, verdict="alike", why="the same in every run")
    gain = comparison.ratio if comparison.column.relative else _gain_of_share(comparison)
    verdict, why = claim_of(gain.value, gain.low, gain.high, comparison.p, margin)
    return replace(comparison, verdict=verdict, why=why or (gain.why if verdict == "not shown" else None))


def _gain_of_share(comparison: MetricComparison) -> Estimate:
    """5 points gained are 1.05, 5 points lost are 1/1.05."""
    points = comparison.difference.scaled(-1 if comparison.column.better == "lower" else 1)
    value, low, high = (
        None if part is None else 1 + part if part >= 0 else 1 / (1 - part)
        for part in (points.value, points.low, points.high)
    )
    return replace(points, value=value, low=low, high=high)


def ranked(column: Column, samples: Sequence[Sample], paired: bool, margin: float) -> list[MetricComparison]:
    """The best one's comparison with each other, the nearest first. Empty where a run of one lacks the value."""
    order = sorted(samples, key=lambda sample: geometric_mean(sample.values), reverse=column.better == "higher")
    leads = [compare_metric("", column, order[0], other, paired) for other in order[1:]]
    known = [lead for lead in leads if lead is not None]
    return [judged(lead, margin) for lead in corrected(known)] if len(known) == len(leads) else []


def geometric_mean(values: Sequence[float | None]) -> float:
    """0 where a run has no value above zero."""
    known = [value for value in values if value is not None and value > 0]
    if not known or len(known) < len(values):
        return 0.0
    return math.exp(sum(map(math.log, known)) / len(known))
