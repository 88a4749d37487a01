"""Check every compared metric of every stage and engine for a regression from a baseline.

A gate fails closed: it does not pass if the runs lack an engine, a stage, a repeat, a value or a test of the baseline.
Many metrics are checked at once, so p values are corrected over the whole gate (Holm 1979). Between identical versions
at most 1 % of gates fail by chance; `make simulations` checks that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from statistics import median

from enginebench.analysis.engine_runs import EngineRuns, stages_of
from enginebench.analysis.stats import samples
from enginebench.analysis.stats.repeats import MIN_REPEATS, holm
from enginebench.analysis.stats.samples import Sample
from enginebench.analysis.verdict.comparison import sample_of
from enginebench.records.exit_codes import GOOD, MISSED, NOT_ENOUGH
from enginebench.records.metrics import Column
from enginebench.records.view import Estimate, Missing

FALSE_ALARMS = 0.01  # chance that a gate between identical versions fails, over all its checks
MIN_RUNS = 5  # per version; with fewer, the test is wrong more often or finds nothing
WARNING = 0.1  # worse by more than this share of the baseline is a warning, unless the limit is lower
POINTS = 0.1  # limits of shares (failures, attainment) are a tenth, in points: 2 and 1 percentage points


class Result(Enum):
    """Results in the order in which a table shows them."""

    REGRESSION = "regression"  # worse by more than the limit, beyond chance
    MISSING = "missing"  # not comparable, or worse and not testable
    WARNING = "warning"  # worse by more than 10 %, beyond chance
    UNCLEAR = "unclear"  # worse by more than 10 %, which may be chance
    OK = "ok"


class Evidence(Enum):
    """How a change was tested."""

    TEST = "test"  # p says whether it may be chance
    EVERY_RUN = "every run"  # all runs of each version have one value: a test is neither possible nor necessary
    NONE = "none"  # not testable, because the values of some runs fell among failed requests


@dataclass(frozen=True, slots=True)
class Check:
    """A metric of an engine at a stage, compared with the baseline. Without a `stage`, a whole engine or some of its
    runs are missing; without a `column`, a whole stage. The `n` of both estimates are then numbers of runs.

    `baseline` and `now` are over all runs. `change` is the ratio of the geometric means of the runs, new to old; for a
    share, the difference of their means. `p` is two-sided and corrected over all checks of a gate.
    """

    engine: str
    stage: str
    column: Column | None
    baseline: Estimate
    now: Estimate
    change: Estimate
    p: float | None = None
    evidence: Evidence = Evidence.NONE
    result: Result = Result.MISSING

    @property
    def worse(self) -> float:
        """Return by how much the metric is worse, as a share of the baseline; points of a share count ten times.
        Negative is better; +∞ if only the new value falls among failed requests."""
        value, column = self.change.value, self.column
        if value is None or column is None:
            return 0.0
        if not column.relative:
            return (value if column.better == "lower" else -value) / POINTS
        return value - 1 if column.better == "lower" else 1 - value


@dataclass(frozen=True, slots=True)
class Gate:
    """`limit` is the share from which a regression fails the gate. `runs` is the smallest number of runs of an engine,
    now and in the baseline."""

    checks: tuple[Check, ...]  # the most severe first
    limit: float
    runs: tuple[int, int]
    allow_missing: bool = False

    def count(self, result: Result) -> int:
        return sum(check.result is result for check in self.checks)

    @property
    def regressions(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.result is Result.REGRESSION)

    @property
    def exit_code(self) -> int:
        if self.regressions:
            return MISSED
        lacking = self.count(Result.MISSING) and not self.allow_missing
        return NOT_ENOUGH if lacking or min(self.runs) < MIN_RUNS else GOOD


def judge(
    baseline: Sequence[EngineRuns],
    current: Sequence[EngineRuns],
    columns: Sequence[Column],
    limit: float,
    allow_missing: bool = False,
) -> Gate:
    """Check the engines of the baseline, and the stages of both."""
    now = {engine.label: engine for engine in current}
    checks: list[Check] = []
    for before in baseline:
        if before.label in now:
            checks += _checks(before, now[before.label], columns)
        else:
            checks.append(lacking(before.label, runs=(0, len(before.runs))))
    counts = [[len(engine.runs) for engine in side if engine.label in now] for side in (current, baseline)]
    fewest = tuple(min(side, default=0) for side in counts)
    return Gate(decided(checks, limit), limit, (fewest[0], fewest[1]), allow_missing)


def _checks(before: EngineRuns, now: EngineRuns, columns: Sequence[Column]) -> Iterator[Check]:
    if len(now.runs) < len(before.runs):
        yield lacking(now.label, runs=(len(now.runs), len(before.runs)))
    for stage in stages_of([*before.runs, *now.runs]):
        counts = [len(engine.at(stage.label)) for engine in (now, before)]
        if counts != [len(now.runs), len(before.runs)]:
            yield lacking(now.label, stage.label, runs=(counts[0], counts[1]))
            continue
        for column in columns:
            ours, theirs = (
                replace(sample_of(engine, stage.label, column), overall=engine.column(stage.label, column))
                for engine in (now, before)
            )
            if ours.values or theirs.values:
                yield check(now.label, stage.label, column, theirs, ours)


def lacking(engine: str, stage: str = "", column: Column | None = None, runs: tuple[int, int] = (0, 0)) -> Check:
    """Return the check of a part that some runs lack; `runs` is how many have it, now and in the baseline."""
    now, before = (Estimate(None, n=n, missing=Missing.NOT_OBSERVED) for n in runs)
    return Check(engine, stage, column, before, now, now)


def check(engine: str, stage: str, column: Column, before: Sample, now: Sample) -> Check:
    """Compare the runs of one metric. `decided` adds the result and corrects p, over a whole gate."""
    if not (before.complete and now.complete):
        return lacking(engine, stage, column, (len(now.values), len(before.values)))
    change, p = samples.compare(column, now, before, paired=False)
    few = min(len(now.values), len(before.values)) < MIN_REPEATS
    evidence = Evidence.TEST if p is not None else Evidence.NONE if few else Evidence.EVERY_RUN
    if change.value is None:  # some values are among failed requests
        change, evidence = replace(change, value=_change_of_medians(now.values, before.values)), Evidence.NONE
    return Check(engine, stage, column, before.overall, now.overall, change, p, evidence)


def _change_of_medians(now: Sequence[float], before: Sequence[float]) -> float:
    ours, theirs = median(now), median(before)
    if ours == theirs:
        return 1.0
    return math.inf if theirs == 0 or math.isinf(ours) else ours / theirs


def decided(checks: Sequence[Check], limit: float) -> tuple[Check, ...]:
    """Return the checks of a gate with their results, the most severe first."""
    corrected = holm([check.p for check in checks])
    results = [_decided(replace(check, p=p), limit) for check, p in zip(checks, corrected, strict=True)]
    return tuple(sorted(results, key=lambda check: (list(Result).index(check.result), -check.worse)))


def _decided(check: Check, limit: float) -> Check:
    if check.change.value is None:
        return check
    certain = check.evidence is Evidence.EVERY_RUN or (check.p is not None and check.p <= FALSE_ALARMS)
    if check.worse <= min(WARNING, limit):
        result = Result.OK
    elif check.evidence is Evidence.NONE:
        result = Result.MISSING if check.worse > limit else Result.UNCLEAR
    elif not certain:
        result = Result.UNCLEAR
    else:
        result = Result.REGRESSION if check.worse > limit else Result.WARNING
    return replace(check, result=result)
