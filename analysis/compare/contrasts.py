"""Each engine against a named baseline, measure by measure: what `enginebench compare` prints.

The runs are the samples. An engine is better in a measure when the difference is significant after Holm's correction
over all measures and engines of the stage, and the ratio is at least the practical margin. Where the runs are unlike
one another nothing is claimed, unless the user allows it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

from analysis.compare.answers import SameAnswers, same_answers
from analysis.compare.engine_runs import Contender, contenders_of, paired, stages_of
from analysis.compare.likeness import different_scenarios, unlike
from analysis.compare.measures import Better, Measure, measures_of
from analysis.compare.prompts import PromptPairs, pair_by_prompt
from analysis.compare.winner import Comparison, compare
from analysis.settings import MARGIN
from analysis.stats.differences import Difference, Spread, compare_runs, spread
from analysis.stats.estimate import CONFIDENCE, Estimate
from analysis.stats.repeats import REPEATS, holm
from analysis.summary.finding import Finding
from analysis.summary.run_summary import RunSummary
from records.formatting import in_words
from settings.schema import UserMistake

Verdict = Literal["better", "worse", "alike", "not shown"]
"""`alike`: the interval of the ratio lies within the practical margin. `not shown`: chance, or too few runs."""

BASELINE = "transformers"  # the baseline where it is among the engines and none is named


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast(Difference):
    """One measure of one engine against the baseline: the test of the difference, and what it says.

    `difference` is engine minus baseline, in the measure's unit. `ratio` is turned so that above 1 the engine is
    better: 3 is a third of the latency, or three times the throughput. `p` is after Holm's correction.
    """

    measure: str
    title: str
    unit: str
    better: Better
    engine: str
    ours: Spread
    theirs: Spread
    by_prompt: PromptPairs | None
    verdict: Verdict = "not shown"
    why: str | None = None  # there is no verdict of better or worse


@dataclass(frozen=True, slots=True)
class StageContrasts:
    """All engines but the baseline at one stage. `missing` are measures that some run lacks."""

    label: str
    contrasts: tuple[Contrast, ...]
    missing: tuple[str, ...]

    def of(self, engine: str, measure: str) -> Contrast | None:
        return next((one for one in self.contrasts if (one.engine, one.measure) == (engine, measure)), None)


@dataclass(frozen=True, slots=True)
class Contrasts:
    """`stage` is the one that is shown: the heaviest common one, or the one asked for. `blocked` says why nothing may
    be claimed; the numbers are still given."""

    baseline: str
    engines: tuple[str, ...]
    stage: str
    stages: tuple[StageContrasts, ...]
    differ: tuple[Finding, ...]
    answers: tuple[SameAnswers, ...]  # of each engine, at the stage that is shown
    blocked: str | None
    comparison: Comparison
    margin: float

    @property
    def shown(self) -> StageContrasts:
        return next(one for one in self.stages if one.label == self.stage)

    @property
    def sentence(self) -> str:
        if self.blocked:
            return f"Nothing is claimed, because {self.blocked}."
        return " ".join([*(_said(engine, self) for engine in self.engines), *self.otherwise])

    @property
    def otherwise(self) -> list[str]:
        """A sentence for each engine that does not give the baseline's answers."""
        return [said for one in self.answers if (said := one.sentence(self.baseline)) is not None]


def contrast(
    summaries: Sequence[RunSummary],
    baseline: str | None = None,
    stage: str | None = None,
    allow_different: bool = False,
    allow_invalid: bool = False,
    margin: float = MARGIN,
) -> Contrasts:
    """Runs of two engines or more. Raises `UserMistake` where they cannot be compared."""
    contenders = {one.label: one for one in contenders_of(summaries)}
    if len(contenders) < 2:
        raise UserMistake(f"there is nothing to compare: all runs belong to {summaries[0].label}.")
    name = _baseline(baseline, list(contenders))
    shared = [one.label for one in stages_of(summaries) if all(run.at(one.label) is not None for run in summaries)]
    if not shared:
        raise UserMistake("these runs have no stage in common.")
    if stage is not None and stage not in shared:
        raise UserMistake(f"the runs have no common stage `{stage}`; choose from {', '.join(shared)}.")
    shown = stage or shared[-1]
    engines = tuple(label for label in contenders if label != name)
    scenarios = different_scenarios(summaries)
    differ = (*([scenarios] if scenarios else []), *unlike(summaries, shown))
    measures = measures_of(summaries)
    return Contrasts(
        baseline=name,
        engines=engines,
        stage=shown,
        stages=tuple(
            _at(label, [contenders[engine] for engine in engines], contenders[name], measures, margin)
            for label in shared
        ),
        differ=differ,
        answers=tuple(same_answers(contenders[engine].runs, contenders[name].runs, shown) for engine in engines),
        blocked=_blocked(summaries, differ, allow_different, allow_invalid),
        comparison=compare(summaries, allow_invalid or allow_different, margin),
        margin=margin,
    )


def _baseline(wanted: str | None, labels: Sequence[str]) -> str:
    if wanted is None:
        return BASELINE if BASELINE in labels else labels[0]
    if wanted not in labels:
        raise UserMistake(f"there are no runs of `{wanted}`; the baseline is one of {', '.join(labels)}.")
    return wanted


def _blocked(
    summaries: Sequence[RunSummary], differ: Sequence[Finding], allow_different: bool, allow_invalid: bool
) -> str | None:
    invalid = dict.fromkeys(summary.label for summary in summaries if summary.invalid)
    if invalid and not allow_invalid:
        return f"a run of {in_words(list(invalid))} is invalid (`enginebench compare --allow-invalid` accepts it)"
    if differ and not allow_different:
        return "the runs differ (`enginebench compare --allow-different` accepts that)"
    return None


def _at(
    label: str, engines: Sequence[Contender], baseline: Contender, measures: Sequence[Measure], margin: float
) -> StageContrasts:
    found: list[Contrast] = []
    missing: list[str] = []
    for engine in engines:
        pairs = paired([engine, baseline])
        metrics = [measure.metric for measure in measures if measure.metric is not None]
        prompts = pair_by_prompt(engine.runs, baseline.runs, label, list(dict.fromkeys(metrics))) if pairs else {}
        for measure in measures:
            ours, theirs = ([measure.of(stage) for stage in one.at(label)] for one in (engine, baseline))
            values, others = ([value for value in side if value is not None] for side in (ours, theirs))
            if len(values) < len(ours) or len(others) < len(theirs):
                missing += [measure.title] if values or others else []
                continue
            least_error = measure.least_error(engine.at(label), baseline.at(label))
            test = compare_runs(values, others, pairs, measure.relative, least_error)
            found.append(_contrast(measure, engine.label, values, others, test, prompts.get(measure.metric or "")))
    return StageContrasts(label, _judged(found, measures, margin), tuple(dict.fromkeys(missing)))


def _contrast(
    measure: Measure,
    engine: str,
    ours: Sequence[float],
    theirs: Sequence[float],
    test: Difference,
    prompts: PromptPairs | None,
) -> Contrast:
    turned = inverse(test.ratio) if measure.better == "lower" else test.ratio
    tested = {field.name: getattr(test, field.name) for field in fields(Difference)}
    tested |= {"difference": _finite(test.difference, ours, theirs), "ratio": _finite(turned, ours, theirs)}
    return Contrast(
        measure=measure.name,
        title=measure.title,
        unit=measure.unit,
        better=measure.better,
        engine=engine,
        ours=spread(ours),
        theirs=spread(theirs),
        by_prompt=prompts,
        **tested,
    )


def _finite(estimate: Estimate, ours: Sequence[float], theirs: Sequence[float]) -> Estimate:
    infinite = math.inf in ours or math.inf in theirs
    why = "falls among failed requests"
    return replace(estimate, value=None, low=None, high=None, why=why) if infinite else estimate


def inverse(ratio: Estimate) -> Estimate:
    """1 ÷ the ratio, its interval turned round."""
    if ratio.value is None:
        return ratio
    low, value, high = (
        None if bound is None else 1 / bound if bound else math.inf for bound in (ratio.high, ratio.value, ratio.low)
    )
    return replace(ratio, value=value, low=low, high=high)


def _judged(found: Sequence[Contrast], measures: Sequence[Measure], margin: float) -> tuple[Contrast, ...]:
    relative = {measure.name: measure.relative for measure in measures}
    adjusted = holm([one.p for one in found])
    return tuple(
        _verdict(replace(one, p=p), relative[one.measure], margin) for one, p in zip(found, adjusted, strict=True)
    )


def _verdict(one: Contrast, relative: bool, margin: float) -> Contrast:
    """The rule of a winner (statistics/repeats.py), in both directions; of a share the margin is one of points."""
    if one.p is None:
        return replace(one, why=one.ratio.why or one.difference.why)
    if one.difference.value == 0 and one.p == 1:
        return replace(one, verdict="alike", why="equal in all runs")
    if relative:
        value, low, high = one.ratio.value, one.ratio.low, one.ratio.high
        if value is None or low is None or high is None:
            return replace(one, why=one.ratio.why)
        up, down, within = value >= margin, value <= 1 / margin, 1 / margin <= low and high <= margin
    else:
        difference = one.difference
        if difference.value is None or difference.low is None or difference.high is None:
            return replace(one, why=difference.why)
        gain, points = difference.value if one.better == "higher" else -difference.value, margin - 1
        up, down, within = gain >= points, gain <= -points, max(abs(difference.low), abs(difference.high)) <= points
    if one.p <= 1 - CONFIDENCE and (up or down):
        return replace(one, verdict="better" if up else "worse")
    if within:
        return replace(one, verdict="alike", why=f"within the practical margin of {margin:g}")
    chance = "the difference may be chance"
    return replace(one, why=chance if one.p > 1 - CONFIDENCE else f"below the practical margin of {margin:g}")


def _said(engine: str, contrasts: Contrasts) -> str:
    by_verdict: dict[Verdict, list[str]] = {"better": [], "worse": [], "alike": [], "not shown": []}
    for one in contrasts.shown.contrasts:
        if one.engine == engine:
            by_verdict[one.verdict].append(one.title)
    against = f"{engine} against {contrasts.baseline} at {contrasts.stage}"
    said = [
        f"{verdict} in {in_words(titles)}"
        for verdict, titles in by_verdict.items()
        if titles and verdict != "not shown"
    ]
    if not said:
        runs = min((min(one.ours.n, one.theirs.n) for one in contrasts.shown.contrasts), default=0)
        need = f": {runs} {'run' if runs == 1 else 'runs'} each, and a claim needs {REPEATS}" if runs < REPEATS else ""
        return f"{against}: no difference is shown{need}."
    rest = len(by_verdict["not shown"])
    return f"{against}: {'; '.join(said)}{f'; {rest} others not shown' if rest else ''}."
