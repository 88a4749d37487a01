"""Has anything become worse than a baseline? Every compared metric of every stage and engine is judged, by the same
comparison that names winners.

A gate fails closed: what the baseline has and the runs lack (an engine, a stage, a repeat, a value) is no pass. Many
metrics are judged at once, so variances are shared among them (`stats/moderated.py`) and p values are corrected over
the whole gate (Holm 1979): that it fails by chance alone has a probability of at most 1 %. `make simulations` checks
that.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from enginebench.analysis.compare.engine_runs import EngineRuns, engine_runs_of, since_due, stages_of
from enginebench.analysis.compare.likeness import Unlikeness, different_scenarios, unlike
from enginebench.analysis.compare.metric_comparison import (
    MetricComparison,
    Sample,
    compare_metric,
    corrected,
    sample_of,
)
from enginebench.analysis.settings import CRITICAL
from enginebench.analysis.stats.estimate import t_p_value, t_quantile
from enginebench.analysis.stats.moderated import LEAST_TESTS, moderated_tests
from enginebench.analysis.stats.repeats import REPEATS
from enginebench.analysis.summary.remarks import remarks
from enginebench.analysis.summary.run_summary import SUMMARY, FlowSeries, RunSummary, read_summary, write_summary
from enginebench.records.files import place_inside
from enginebench.records.formatting import format_share, in_words
from enginebench.records.metrics import Column, columns
from enginebench.records.quality import MAX_EXPONENT
from enginebench.records.view import Finding
from enginebench.settings.schema import UserMistake

FALSE_ALARMS = 0.01  # chance that a gate between identical versions fails, over all its checks
WARNING = 0.1  # worse by more than this, as a share of the baseline; from `CRITICAL` on a gate fails
POINTS = 0.1  # of shares (failures, attainment) a tenth of the limits counts, in points: 2 and 1 percentage points
NAMED = 3  # regressions, or missing parts, that the sentence names
BASELINE = "baseline"

Severity = Literal["critical", "warning", "unclear", "ok"]
"""`unclear`: worse by more than a limit, and chance is not excluded; or among failures in more runs than before."""


class GateRefused(UserMistake):
    """The gate cannot answer. One sentence, with the way out; exit code 2."""


@dataclass(frozen=True, slots=True)
class Check:
    """One metric of one engine at one stage, over the baseline."""

    comparison: MetricComparison
    severity: Severity

    @property
    def certain(self) -> bool:
        """Worse by more than a limit, beyond chance."""
        return self.severity in {"critical", "warning"}

    @property
    def size(self) -> float:
        """By how much it is worse, as the limits count it: points of a share count ten times."""
        return size_of(self.comparison)


@dataclass(frozen=True, slots=True)
class Gate:
    """`fail_at` is the share from which a regression fails the gate; `notes` are things to know that do not, each
    with what it is: `missing: …`, `warn: …`, `note: …`."""

    checks: tuple[Check, ...]  # the gravest first
    fail_at: float
    runs: int
    baseline_runs: int
    notes: tuple[str, ...]

    @property
    def failing(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.certain and check.size > self.fail_at)

    @property
    def unclear(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.severity == "unclear")

    @property
    def passed(self) -> bool:
        return not self.failing

    @property
    def sentence(self) -> str:
        over = f"{len(self.checks)} checks, {self.runs} runs against {self.baseline_runs} of the baseline"
        if self.passed:
            warned = sum(check.certain for check in self.checks)
            also = f", {warned} with a warning" if warned else ""
            also += f", {len(self.unclear)} unclear" if self.unclear else ""
            return f"Passed: nothing is shown to be worse by more than {format_share(self.fail_at)}{also} ({over})."
        several = len({check.comparison.engine for check in self.checks}) > 1
        worst = [
            f"{each.column.full_title}{f' of {each.engine}' if several else ''} at {each.stage}"
            for each in (check.comparison for check in self.failing[:NAMED])
        ]
        worst += [f"{len(self.failing) - NAMED} more"] if len(self.failing) > NAMED else []
        return f"Failed: worse by more than {format_share(self.fail_at)} in {in_words(worst)} ({over})."


def size_of(comparison: MetricComparison) -> float:
    if _failures_count(comparison):
        return math.inf
    worse = comparison.worse.value
    if worse is None:
        return _worse_median(comparison)
    return worse / (1.0 if comparison.column.relative else POINTS)


def _worse_median(comparison: MetricComparison) -> float:
    """By how much the median run is worse, where runs among failures leave no ratio of means: +∞ where it is one of
    them, and was not."""
    now, before = comparison.ours.median, comparison.theirs.median
    if now == before or (before == 0 and comparison.column.better == "higher"):
        return 0.0
    change = math.inf if before == 0 or math.isinf(now) else now / before - 1
    return change if comparison.column.better == "lower" else -change


def judge(
    baseline: Sequence[RunSummary],
    current: Sequence[RunSummary],
    fail_at: float = CRITICAL,
    allow_different: bool = False,
    allow_invalid: bool = False,
    allow_missing: bool = False,
) -> Gate:
    """Raises `GateRefused`."""
    before = {engine.label: engine for engine in engine_runs_of(baseline)}
    now = {engine.label: engine for engine in engine_runs_of(current)}
    new = [label for label in now if label not in before]
    if new:
        raise GateRefused(f"the baseline has no runs of {in_words(new)}; it has {', '.join(before)}: save a new one.")
    invalid = dict.fromkeys(run.label for run in (*baseline, *current) if run.invalid)
    if invalid and not allow_invalid:
        raise GateRefused(
            f"a run of {in_words(list(invalid))} is invalid: see `enginebench report`; --allow-invalid accepts it."
        )
    if {run.objectives for run in baseline} != {run.objectives for run in current}:
        raise GateRefused("the baseline was saved with other objectives: give the same --slo, or save a new baseline.")
    differences = [finding for label in now for finding in _differences(before[label], now[label])]
    blocking = [finding for finding in differences if finding.kind != Unlikeness.VERSION.kind]
    if blocking and not allow_different:
        raise GateRefused(f"{blocking[0].evidence}: {blocking[0].remedy}, or judge them anyway with --allow-different.")
    compared = columns("compared", since_due([*baseline, *current]))
    missing = [f"{label} was not run" for label in before if label not in now]
    comparisons: list[MetricComparison] = []
    for label, engine in now.items():
        for part in _parts(before[label], engine, compared):
            if isinstance(part, str):
                missing.append(part)
            else:
                comparisons.append(part)
    findings = [*differences, *(finding for run in current for finding in run.findings)]
    notes = [f"{remark.severity}: {remark.text}" for remark in remarks(findings, [run.label for run in current])]
    return gate_of(comparisons, missing, fail_at, len(current), len(baseline), notes, allow_missing)


def gate_of(
    comparisons: Sequence[MetricComparison],
    missing: Sequence[str],
    fail_at: float,
    runs: int,
    baseline_runs: int,
    notes: Sequence[str],
    allow_missing: bool = False,
) -> Gate:
    """Of comparisons with the baseline that are not yet corrected, and sentences on what could not be compared.

    Raises `GateRefused` where something is missing, unless that is allowed; and where nothing or too little is left.
    """
    few = [each for each in comparisons if min(each.ours.n, each.theirs.n) < REPEATS]
    if few:
        sides = f"{few[0].theirs.n} in the baseline and {few[0].ours.n} to judge"
        raise GateRefused(
            f"a gate needs {REPEATS} runs of each, better 5; {few[0].engine} has {sides}: enginebench run … --repeat 5."
        )
    if missing and not allow_missing:
        names = [*missing[:NAMED], *([f"{len(missing) - NAMED} more"] if len(missing) > NAMED else [])]
        raise GateRefused(
            f"these runs and the baseline do not have the same: {'; '.join(names)}. --allow-missing judges the rest."
        )
    if not comparisons:
        raise GateRefused("the runs and the baseline have nothing in common that could be judged: save a new baseline.")
    checks = checks_of(comparisons, min(WARNING, fail_at))
    untested = [_untested_text(check.comparison) for check in checks if _untested(check, fail_at)]
    lacks = (*(f"missing: {part}" for part in missing), *(f"missing: a test of {part}" for part in untested))
    gate = Gate(checks, fail_at, runs, baseline_runs, (*lacks, *notes))
    if untested and gate.passed and not allow_missing:
        names = [*untested[:NAMED], *([f"{len(untested) - NAMED} more"] if len(untested) > NAMED else [])]
        raise GateRefused(
            f"worse by more than {format_share(fail_at)}, and too few runs to exclude chance: {'; '.join(names)}. Run "
            "more repeats; --allow-missing judges the rest."
        )
    return gate


def _untested(check: Check, fail_at: float) -> bool:
    """Worse by more than the limit, and no test says whether that is chance."""
    without = check.comparison.column.relative and check.comparison.ratio.value is None
    return check.severity == "unclear" and check.size > fail_at and (without or check.comparison.p is None)


def _untested_text(comparison: MetricComparison) -> str:
    text = f"{comparison.column.full_title} of {comparison.engine} at {comparison.stage}"
    return f"{text} {failures_text(comparison)}" if any(comparison.failed_runs) else text


def failures_text(comparison: MetricComparison) -> str:
    now, before = comparison.failed_runs
    sides = f"{now} of {comparison.ours.n} runs (baseline: {before} of {comparison.theirs.n})"
    return f"fell among failures in {sides}"


def checks_of(comparisons: Sequence[MetricComparison], warning: float = WARNING) -> tuple[Check, ...]:
    """The gravest first; `comparisons` are not yet corrected."""
    tested = corrected(_moderated([_tested(each) for each in comparisons]))
    checks = [Check(each, _severity(each, warning)) for each in tested]
    order: dict[Severity, int] = {"critical": 0, "warning": 1, "unclear": 2, "ok": 3}
    return tuple(sorted(checks, key=lambda check: (order[check.severity], -check.size)))


def _tested(comparison: MetricComparison) -> MetricComparison:
    """Where runs among failures leave no ratio, how many there are is tested (Fisher 1935)."""
    now, before = comparison.failed_runs
    if comparison.ratio.value is not None or not (now or before):
        return comparison
    from scipy.stats import fisher_exact  # takes a second to import

    table = [[now, comparison.ours.n - now], [before, comparison.theirs.n - before]]
    return replace(comparison, p=float(fisher_exact(table).pvalue))


def _moderated(comparisons: Sequence[MetricComparison]) -> list[MetricComparison]:
    """With variances that the checks of one engine share; what has a p value was tested by logarithms, except shares.
    What the runs themselves know of their error counts as before."""
    moderated = list(comparisons)
    by_runs: dict[tuple[str, int, int], list[int]] = {}
    for index, each in enumerate(comparisons):
        if each.column.relative and each.p is not None and each.ratio.value is not None:
            by_runs.setdefault((each.engine, each.ours.n, each.theirs.n), []).append(index)
    for places in by_runs.values():
        ours, theirs = (np.log([comparisons[index].runs[side] for index in places]) for side in (0, 1))
        if len(places) >= LEAST_TESTS:
            for index, p, half in zip(places, *(part.tolist() for part in moderated_tests(ours, theirs)), strict=True):
                moderated[index] = _with_test(comparisons[index], p, half)
    return moderated


def _with_test(comparison: MetricComparison, p: float, half: float) -> MetricComparison:
    """With that p value, and the interval of the ratio whose logarithm is so wide to either side; neither is less than
    by the error that the difference of the runs has at least. Runs without any spread have no interval."""
    ratio = comparison.ratio
    assert ratio.value is not None
    error = comparison.least_error / min(comparison.ours.mean, comparison.theirs.mean)
    if error > 0:
        p = max(p, t_p_value(math.log(ratio.value) / error, math.inf))
        half = max(half, t_quantile(math.inf) * error)
    half = min(half, MAX_EXPONENT)
    if ratio.low is not None:
        ratio = replace(ratio, low=ratio.value * math.exp(-half), high=ratio.value * math.exp(half))
    return replace(comparison, p=p, ratio=ratio)


def _severity(comparison: MetricComparison, warning: float) -> Severity:
    size, (now, before) = size_of(comparison), comparison.failed_runs
    if now > before and not comparison.ratio.value:
        return "critical" if _failures_count(comparison) else "unclear"
    if size <= warning:
        return "ok"
    if not _certain(comparison) and not _constant(comparison):
        return "unclear"
    return "critical" if size > CRITICAL else "warning"


def _certain(comparison: MetricComparison) -> bool:
    """Half of the tests are of improvements, hence twice the level."""
    return comparison.p is not None and comparison.p <= 2 * FALSE_ALARMS


def _failures_count(comparison: MetricComparison) -> bool:
    """Whether what fell among failures is a regression: in all runs now and in none before, as engines are compared
    too, or by the test. Where about as many requests fail as the percentile allows, half of the runs do by chance."""
    now, before = comparison.failed_runs
    all_now = now == comparison.ours.n and before == 0
    return not comparison.ratio.value and now > before and (all_now or _certain(comparison))


def _constant(comparison: MetricComparison) -> bool:
    """One number in all runs of either side, to the last digit: nothing can be tested, and nothing need be. Durations
    that a coarse clock made equal are tested with an error of its step, and are no such numbers."""
    sides = (comparison.ours, comparison.theirs)
    return comparison.p is None and all(side.least == side.largest and math.isfinite(side.mean) for side in sides)


def _differences(before: EngineRuns, now: EngineRuns) -> Iterator[Finding]:
    """What makes a run of either side incomparable with the first of the baseline; and the version of this tool, which
    is only told."""
    runs = [*before.runs, *now.runs]
    scenarios = different_scenarios(runs)
    if scenarios is not None:
        yield scenarios
    seen: set[tuple[str, str]] = set()
    for stage in stages_of(runs):
        for finding in unlike(runs, stage.label):
            if (finding.kind, finding.evidence) not in seen:
                seen.add((finding.kind, finding.evidence))
                yield finding


def _parts(before: EngineRuns, now: EngineRuns, compared: Sequence[Column]) -> Iterator[MetricComparison | str]:
    """Comparisons, and a sentence for each repeat, stage or metric that the baseline has and the current runs lack, and
    for each stage or metric that the baseline lacks: no gate has judged it."""
    if len(now.runs) < len(before.runs):
        yield f"{now.label} has {len(now.runs)} runs and not {len(before.runs)}"
    for stage in stages_of(before.runs):
        sides = before.at(stage.label), now.at(stage.label)
        if len(sides[0]) < len(before.runs) or len(sides[1]) < len(now.runs):
            yield f"not every run of {now.label} has the stage {stage.label}"
            continue
        for column in compared:
            ours, theirs = (sample_of(engine, stage.label, column) for engine in (now, before))
            comparison = compare_metric(stage.label, column, ours, _as_baseline(theirs), paired=False)
            if comparison is not None:
                yield comparison
            elif theirs.values or ours.values:
                whose = "" if theirs.complete else " of the baseline"
                yield f"{column.full_title} of {now.label} at {stage.label} is not known in every run{whose}"
    for stage in stages_of(now.runs):
        if not before.at(stage.label):
            yield f"no run of {now.label} in the baseline has the stage {stage.label}"


def _as_baseline(sample: Sample) -> Sample:
    return replace(sample, engine=BASELINE)


def save_baseline(folder: Path, summaries: Sequence[RunSummary]) -> list[Path]:
    """Write `folder`/<run id>/summary.json for each run; saved runs of the same engines are replaced.

    What only charts need is left out. Raises `OSError`, and `NotARun` for a saved summary of another version.
    """
    labels = {summary.label for summary in summaries}
    for saved in _saved(folder):
        if read_summary(saved).label in labels:
            shutil.rmtree(saved)
    written = []
    for summary in summaries:
        folder.mkdir(parents=True, exist_ok=True)
        place = place_inside(folder, f"{summary.run_id}/{SUMMARY}").parent
        stages = tuple(replace(stage, curves={}, series={}) for stage in summary.stages)
        flow = FlowSeries(summary.flow.step, (), ())
        written.append(write_summary(replace(summary, folder=place, stages=stages, flow=flow)))
    return written


def _saved(folder: Path) -> list[Path]:
    """Folders that hold a summary and nothing else: those that this module has written."""
    if not folder.is_dir():
        return []
    return [
        path
        for path in sorted(folder.iterdir())
        if path.is_dir() and not path.is_symlink() and [p.name for p in path.iterdir()] == [SUMMARY]
    ]
