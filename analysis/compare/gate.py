"""From runs to a gate: which engines and stages the baseline has, whether the runs are alike, and what became worse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from analysis.compare.engine_runs import Contender, contenders_of, stages_of
from analysis.compare.gate_checks import WARNING, Check, Sample, decide
from analysis.compare.likeness import different_scenarios, unlike
from analysis.compare.measures import Measure, measures_of
from analysis.settings import CRITICAL
from records.view import Finding
from analysis.summary.run_summary import RunSummary
from records.formatting import format_share, in_words
from settings.schema import UserMistake


class GateRefused(UserMistake):
    """The gate cannot answer. One sentence, with the way out; exit code 2."""


NAMED = 3  # regressions that the sentence names


@dataclass(frozen=True, slots=True)
class Gate:
    """`fail_at` is the share from which a regression fails the gate; `notes` are things to know that do not."""

    checks: tuple[Check, ...]
    fail_at: float
    runs: int
    baseline_runs: int
    notes: tuple[str, ...]

    @property
    def failing(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.certain and check.size > self.fail_at)

    @property
    def passed(self) -> bool:
        return not self.failing

    @property
    def sentence(self) -> str:
        over = f"{len(self.checks)} checks, {self.runs} runs against {self.baseline_runs} of the baseline"
        if self.passed:
            warned = sum(check.certain for check in self.checks)
            also = f", {warned} with a warning" if warned else ""
            return f"Passed: nothing is worse by more than {format_share(self.fail_at)}{also} ({over})."
        several = len({check.sample.engine for check in self.checks}) > 1
        worst = [
            f"{one.title}{f' of {one.engine}' if several else ''} at {one.stage}"
            for one in (check.sample for check in self.failing[:NAMED])
        ]
        worst += [f"{len(self.failing) - NAMED} more"] if len(self.failing) > NAMED else []
        return f"Failed: worse by more than {format_share(self.fail_at)} in {in_words(worst)} ({over})."


def judge(
    baseline: Sequence[RunSummary],
    current: Sequence[RunSummary],
    fail_at: float = CRITICAL,
    allow_different: bool = False,
    allow_invalid: bool = False,
) -> Gate:
    """Raises `GateRefused`."""
    before = {one.label: one for one in contenders_of(baseline)}
    now = {one.label: one for one in contenders_of(current)}
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
    differ = [finding for label in now for finding in _differ(before[label], now[label])]
    if differ and not allow_different:
        raise GateRefused(f"{differ[0].evidence}: {differ[0].remedy}, or judge them anyway with --allow-different.")
    measures = measures_of([*baseline, *current])
    found = [one for label, contender in now.items() for one in _samples(before[label], contender, measures)]
    if not any(isinstance(one, Sample) for one in found):
        raise GateRefused("the runs and the baseline have no stage in common: save a new baseline.")
    missing = [f"{label}: not run" for label in before if label not in now]
    return gate_of(found, fail_at, len(current), len(baseline), [*missing, *(one.evidence for one in differ)])


def gate_of(found: Sequence[Sample | str], fail_at: float, runs: int, baseline_runs: int, notes: Sequence[str]) -> Gate:
    """Of samples, and sentences for what was not measured. Raises `GateRefused`."""
    try:
        checks = decide([one for one in found if isinstance(one, Sample)], min(WARNING, fail_at))
    except ValueError as error:
        raise GateRefused(str(error)) from None
    return Gate(checks, fail_at, runs, baseline_runs, (*(one for one in found if isinstance(one, str)), *notes))


def _differ(before: Contender, now: Contender) -> Iterator[Finding]:
    """What makes them incomparable. The commit, and so the version, is what a gate is about."""
    runs = [before.runs[0], *now.runs]
    scenarios = different_scenarios(runs)
    if scenarios is not None:
        yield scenarios
    for stage in stages_of(runs):
        yield from (one for one in unlike(runs, stage.label) if one.kind != "commits_differ")


def _samples(before: Contender, now: Contender, measures: Sequence[Measure]) -> Iterator[Sample | str]:
    """Samples, and a sentence for each stage or measure that the current runs lack."""
    for stage in stages_of(before.runs):
        then, here = before.at(stage.label), now.at(stage.label)
        if len(here) < len(now.runs) or len(then) < len(before.runs):
            yield f"{now.label}: not every run has the stage {stage.label}, which is not judged"
            continue
        for measure in measures:
            sides = [[measure.of(each) for each in side] for side in (then, here)]
            known = [tuple(value for value in side if value is not None) for side in sides]
            if all(len(values) == len(side) for values, side in zip(known, sides, strict=True)):
                yield Sample(
                    now.label,
                    stage.label,
                    measure.name,
                    measure.title,
                    measure.unit,
                    measure.better,
                    measure.relative,
                    baseline=known[0],
                    current=known[1],
                    least_error=measure.least_error(then, here),
                )
            elif known[0]:
                yield f"{now.label} at {stage.label}: {measure.title} was not measured in every run"
