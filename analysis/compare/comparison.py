"""Engine against engine: the one comparison from which winner, tables, sentences, costs and gate are made.

The runs are the samples: what differs from run to run is larger than what differs inside one. At every common stage
each engine is compared with the baseline, and the best one with each other, in every compared metric. One correction
(Holm 1979) covers the tests of a stage: those of the deciding metric first, over its pairs, then all others together;
metrics that are the same number in every run are not tested. Where runs are unlike, nothing is claimed of those.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from analysis.compare.answers import SameAnswers, same_answers
from analysis.compare.capacity import CapacityComparison, SloCapacity, capacities_of, compare_capacities
from analysis.compare.engine_runs import EngineRuns, common_stages, engine_runs_of, paired, since_due, stages_of
from analysis.compare.likeness import NAMED_ONLY, blocks, different_scenarios, unlike
from analysis.compare.prompts import PromptPairs, pair_by_prompt
from analysis.stats.differences import Spread, compare_runs, spread
from analysis.stats.repeats import REPEATS, chance_error, holm
from analysis.summary.run_summary import RunSummary
from records.formatting import format_share, in_words, join_labels
from records.metrics import Column, columns
from records.rules import MARGIN, Difference, difference_of
from records.view import Estimate, Finding, StageView, in_order
from settings.schema import UserMistake

BASELINE = "transformers"  # the baseline where it is among the engines and none is named
DECIDING = "throughput"  # engines are ranked by it where no objective decides
RUN_TO_RUN = 0.05  # standard deviation, as a share, from which on repeats are called apart
FAILURES_BORNE = 0.05  # share of failed requests above which a stage is no evidence that a load can be served
NORMAL = 1.96  # standard errors from a value to either end of its interval


@dataclass(frozen=True, slots=True)
class MetricComparison:
    """One metric of one engine against another's at one stage, a value a run.

    `difference` is engine minus the other, in the metric's unit. `ratio` is turned so that above 1 the engine is
    better: 3 is a third of the latency, or three times the throughput. `p` is two-sided and corrected for all tests of
    the stage; `welch` and `mann_whitney` are each by itself.
    """

    stage: str
    engine: str
    over: str
    column: Column
    ours: Spread
    theirs: Spread
    difference: Estimate
    ratio: Estimate
    paired: bool
    p: float | None
    welch: float | None
    mann_whitney: float | None
    cohen_d: float | None
    cliff_delta: float | None
    by_prompt: PromptPairs | None = None
    verdict: Difference = "not shown"
    why: str | None = None  # it is neither better nor worse


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All engines, best first, at every common stage.

    `stage` is that of the headline: the heaviest at which the objectives are met, or without objectives the heaviest.
    `winner` is `None` where none may be named: `why` not. `unlike` holds for each engine what makes its runs unlike
    the baseline's, and hinders a claim. `differs` names what differs besides, in a word or two.
    """

    baseline: str
    engines: tuple[str, ...]
    stage: str | None
    stages: tuple[str, ...]
    comparisons: tuple[MetricComparison, ...]
    missing: tuple[str, ...]  # titles of what some run lacks at `stage`
    capacities: tuple[SloCapacity, ...]
    capacity_comparisons: tuple[CapacityComparison, ...]  # with the baseline, and of the best with each other
    answers: tuple[SameAnswers, ...]
    winner: str | None
    why: str | None
    unlike: Mapping[str, str]
    differs: Mapping[str, str]
    findings: tuple[Finding, ...]
    margin: float
    runs: Mapping[str, int]

    @property
    def invalid(self) -> bool:
        return any(finding.severity == "invalid" for finding in self.findings)

    @property
    def others(self) -> tuple[str, ...]:
        """All engines but the baseline."""
        return tuple(label for label in self.engines if label != self.baseline)

    def at(self, stage: str | None, engine: str, over: str | None = None) -> tuple[MetricComparison, ...]:
        """All metrics of an engine over another, or over the baseline."""
        other = over or self.baseline
        return tuple(c for c in self.comparisons if (c.stage, c.engine, c.over) == (stage, engine, other))

    def of(self, stage: str | None, engine: str, key: str, over: str | None = None) -> MetricComparison | None:
        return next((one for one in self.at(stage, engine, over) if one.column.key == key), None)

    def capacity(self, engine: str) -> SloCapacity | None:
        return next((capacity for capacity in self.capacities if capacity.engine == engine), None)

    def capacity_ratio(self, engine: str, over: str) -> CapacityComparison | None:
        pairs = (pair for pair in self.capacity_comparisons if (pair.engine, pair.over) == (engine, over))
        return next(pairs, None)


def compare(
    summaries: Sequence[RunSummary],
    baseline: str | None = None,
    stage: str | None = None,
    allow_different: bool = False,
    allow_invalid: bool = False,
    margin: float = MARGIN,
) -> Comparison:
    """Of one engine there is nothing to compare, and the comparison holds its capacity and findings.

    Raises `UserMistake` for a baseline or a stage that there is not.
    """
    engines = engine_runs_of(summaries)
    by_label = {engine.label: engine for engine in engines}
    base = _baseline(baseline, list(by_label))
    scenarios = different_scenarios(summaries)
    stages = [] if scenarios else common_stages(summaries)
    capacities = () if scenarios else capacities_of(summaries)
    chosen = _stage(stage, stages, summaries, capacities)
    differences = [scenarios] if scenarios else _differences(by_label[base], engines, chosen)
    unlike_engines = _unlike(engines, base, differences, allow_different, allow_invalid)
    order = _order(engines, chosen, capacities)
    compared = columns("compared", since_due(summaries))
    pairs = _pairs(order, base)
    comparisons = [one for label in stages for one in _at(label, pairs, by_label, compared, margin)]
    capacity_pairs = _capacity_comparisons(pairs, capacities)
    found = Comparison(
        baseline=base,
        engines=order,
        stage=chosen,
        stages=tuple(stages),
        comparisons=tuple(comparisons),
        missing=() if chosen is None else _missing(chosen, engines, compared),
        capacities=capacities,
        capacity_comparisons=capacity_pairs,
        answers=() if chosen is None else _answers(by_label, base, order, chosen),
        winner=None,
        why=None,
        unlike=unlike_engines,
        differs=_named_only(differences),
        findings=in_order([*differences, *_run_to_run(engines)]),
        margin=margin,
        runs={engine.label: len(engine.runs) for engine in engines},
    )
    why = _why_no_winner(found, by_label)
    return replace(found, winner=None if why else order[0], why=why)


def _baseline(wanted: str | None, labels: Sequence[str]) -> str:
    if wanted is None:
        return BASELINE if BASELINE in labels else labels[0]
    if wanted not in labels:
        raise UserMistake(f"there are no runs of `{wanted}`; the baseline is one of {', '.join(labels)}.")
    return wanted


def _stage(
    wanted: str | None, stages: Sequence[str], summaries: Sequence[RunSummary], capacities: Sequence[SloCapacity]
) -> str | None:
    """With objectives the heaviest common stage that some engine meets them at: beyond it, all miss them."""
    if wanted is not None and wanted not in stages:
        known = f"choose from {', '.join(stages)}" if stages else "they have none"
        raise UserMistake(f"the runs have no common stage `{wanted}`; {known}.")
    if wanted is not None or not stages:
        return wanted
    most = max((capacity.met for capacity in capacities if capacity.met is not None), default=None)
    if most is None:
        return stages[-1]
    loads = {stage.label: stage.load for stage in stages_of(summaries)}
    return next((label for label in reversed(stages) if loads[label] <= most), stages[-1])


def _differences(base: EngineRuns, engines: Sequence[EngineRuns], stage: str | None) -> list[Finding]:
    ordered = [base, *(engine for engine in engines if engine is not base)]
    return unlike([run for engine in ordered for run in engine.runs], stage)


def _unlike(
    engines: Sequence[EngineRuns],
    base: str,
    differences: Sequence[Finding],
    allow_different: bool,
    allow_invalid: bool,
) -> dict[str, str]:
    """By engine, why nothing is claimed of it. What concerns the baseline concerns all."""
    reasons: dict[str, str] = {}
    for engine in engines:
        invalid = any(run.invalid for run in engine.runs)
        if invalid and not allow_invalid:
            reasons[engine.label] = f"a run of {engine.label} is invalid (--allow-invalid accepts it)"
            continue
        own = [each for each in differences if blocks(each) and each.label in {engine.label, None}]
        if own and not allow_different:
            reasons[engine.label] = f"{own[0].evidence} (--allow-different accepts that)"
    if base in reasons:
        reasons |= {engine.label: reasons[base] for engine in engines if engine.label not in reasons}
    return reasons


def _named_only(differences: Sequence[Finding]) -> dict[str, str]:
    named: dict[str, list[str]] = {}
    for finding in differences:
        if finding.label is not None and finding.kind in NAMED_ONLY:
            named.setdefault(finding.label, []).append(NAMED_ONLY[finding.kind])
    return {label: in_words(list(dict.fromkeys(words))) for label, words in named.items()}


def _order(engines: Sequence[EngineRuns], stage: str | None, capacities: Sequence[SloCapacity]) -> tuple[str, ...]:
    """Best first: by the load that meets the objectives, then by throughput."""
    met = {capacity.engine: capacity.met or 0.0 for capacity in capacities}

    def rank(engine: EngineRuns) -> tuple[float, float]:
        throughput = None if stage is None else geometric_mean([at.value(DECIDING) for at in engine.at(stage)])
        return met.get(engine.label, 0.0), throughput or 0.0

    return tuple(engine.label for engine in sorted(engines, key=rank, reverse=True))


def geometric_mean(values: Sequence[float | None]) -> float:
    """0 where a run has no value above zero."""
    known = [value for value in values if value is not None and value > 0]
    if not known or len(known) < len(values):
        return 0.0
    return math.exp(sum(map(math.log, known)) / len(known))


def _pairs(order: Sequence[str], base: str) -> list[tuple[str, str]]:
    """Each engine with the baseline, and the best with each other."""
    pairs = [(label, base) for label in order if label != base]
    pairs += [(order[0], label) for label in order[1:] if label != base]
    return list(dict.fromkeys(pairs))


def _at(
    stage: str,
    pairs: Sequence[tuple[str, str]],
    engines: Mapping[str, EngineRuns],
    compared: Sequence[Column],
    margin: float,
) -> list[MetricComparison]:
    tested = [
        comparison for engine, over in pairs for comparison in _pair(stage, engines[engine], engines[over], compared)
    ]
    corrected = _corrected(tested)
    return [_judged(replace(one, p=p), margin) for one, p in zip(tested, corrected, strict=True)]


def _pair(stage: str, ours: EngineRuns, theirs: EngineRuns, compared: Sequence[Column]) -> list[MetricComparison]:
    pairs = paired([ours, theirs])
    metrics = dict.fromkeys(column.name for column in compared if column.statistic != "value")
    prompts = pair_by_prompt(ours.runs, theirs.runs, stage, list(metrics)) if pairs else {}
    found = []
    for column in compared:
        sides = [[view.value(column.name, column.statistic) for view in side.at(stage)] for side in (ours, theirs)]
        known = [[value for value in side if value is not None] for side in sides]
        if any(len(values) < len(side) or not side for values, side in zip(known, sides, strict=True)):
            continue
        floor = _least_error(column, ours.at(stage), theirs.at(stage))
        test = compare_runs(known[0], known[1], pairs, column.relative, floor)
        found.append(
            MetricComparison(
                stage=stage,
                engine=ours.label,
                over=theirs.label,
                column=column,
                ours=spread(known[0]),
                theirs=spread(known[1]),
                difference=test.difference,
                ratio=test.ratio.inverse if column.better == "lower" else test.ratio,
                paired=test.paired,
                p=test.p,
                welch=test.welch,
                mann_whitney=test.mann_whitney,
                cohen_d=test.cohen_d,
                cliff_delta=test.cliff_delta,
                by_prompt=prompts.get(column.name),
            )
        )
    return found


def _least_error(column: Column, ours: Sequence[StageView], theirs: Sequence[StageView]) -> float:
    """A standard error that the difference of the means has at least, however alike the runs are: what chance makes of
    a share's requests, or the errors inside the runs by their own intervals."""
    sides = [[view.estimate(column.name, column.statistic) for view in side] for side in (ours, theirs)]
    if not column.relative:
        shares, counts = ([[getattr(each, part) or 0 for each in side] for side in sides] for part in ("value", "n"))
        return chance_error(shares[0], shares[1], counts[0], counts[1])
    variance = 0.0
    for side in sides:
        errors = [_standard_error(estimate) for estimate in side]
        variance += sum(error**2 for error in errors) / len(side) ** 2
    return math.sqrt(variance)


def _standard_error(estimate: Estimate) -> float:
    if estimate.low is None or estimate.high is None or math.isinf(estimate.high) or math.isinf(estimate.low):
        return 0.0
    return (estimate.high - estimate.low) / (2 * NORMAL)


def _corrected(tested: Sequence[MetricComparison]) -> list[float | None]:
    """Holm's correction within the deciding metric, and within all others; a number that is the same in every run of
    both sides is no test."""
    adjusted: list[float | None] = [None] * len(tested)
    for deciding in (True, False):
        family = [
            index for index, one in enumerate(tested) if (one.column.key == DECIDING) is deciding and not _constant(one)
        ]
        for index, p in zip(family, holm([tested[index].p for index in family]), strict=True):
            adjusted[index] = p
    return [1.0 if one.p is not None and _constant(one) else p for one, p in zip(tested, adjusted, strict=True)]


def _constant(one: MetricComparison) -> bool:
    return one.ours.least == one.ours.largest == one.theirs.least == one.theirs.largest


def _judged(one: MetricComparison, margin: float) -> MetricComparison:
    """The rule for winners and losers, in both directions; of a share the margin is one of points."""
    if one.column.relative:
        gain, low, high, why = one.ratio.value, one.ratio.low, one.ratio.high, one.ratio.why
    else:
        sign = 1.0 if one.column.better == "higher" else -1.0
        parts = (one.difference.value, one.difference.low, one.difference.high)
        ends = [None if part is None else 1 + sign * part for part in parts]
        gain, (low, high), why = ends[0], sorted(ends[1:], key=lambda end: end or 0.0), one.difference.why
    verdict, reason = difference_of(gain, low, high, one.p, margin)
    return replace(one, verdict=verdict, why=reason or (why if verdict == "not shown" else None))


def _missing(stage: str, engines: Sequence[EngineRuns], compared: Sequence[Column]) -> tuple[str, ...]:
    """What some runs have at the stage and others lack."""
    views = [view for engine in engines for view in engine.at(stage)]
    lacking = []
    for column in compared:
        values = [view.value(column.name, column.statistic) for view in views]
        if None in values and any(value is not None for value in values):
            lacking.append(column.full_title)
    return tuple(lacking)


def _capacity_comparisons(
    pairs: Sequence[tuple[str, str]], capacities: Sequence[SloCapacity]
) -> tuple[CapacityComparison, ...]:
    by_engine = {capacity.engine: capacity for capacity in capacities}
    return tuple(
        compare_capacities(by_engine[engine], by_engine[over])
        for engine, over in pairs
        if engine in by_engine and over in by_engine and by_engine[engine].unit == by_engine[over].unit
    )


def _answers(engines: Mapping[str, EngineRuns], base: str, order: Sequence[str], stage: str) -> tuple[SameAnswers, ...]:
    return tuple(same_answers(engines[label].runs, engines[base].runs, stage) for label in order if label != base)


def _why_no_winner(found: Comparison, engines: Mapping[str, EngineRuns]) -> str | None:
    """The best must be better than each other engine: more load within the objectives, or else more tokens."""
    best, others = found.engines[0], found.engines[1:]
    if not others:
        return "there is only one engine"
    if found.stage is None and not found.capacities:
        return "the runs have no stage in common"
    for label in (best, *others):
        if label in found.unlike:
            return found.unlike[label]
    if found.stage is not None and (failed := _overloaded(engines[best], found.stage)) is not None:
        return failed
    if min(found.runs.values()) < REPEATS:
        return f"a winner needs {REPEATS} repeats of each"
    for other in others:
        capacity = found.capacity_ratio(best, other)
        if capacity is not None and capacity.verdict == "more":
            continue
        if capacity is not None and not _same_bracket(found, best, other):
            return f"whether {best} holds more {found.capacities[0].unit} than {other} is undecided"
        tokens = found.of(found.stage, best, DECIDING, other)
        if tokens is None:
            return f"the tokens of {best} and {other} were not counted in every run"
        if tokens.verdict != "better":
            return f"against {other}, {tokens.why or 'no difference is shown'}"
    return None


def _same_bracket(found: Comparison, one: str, other: str) -> bool:
    """Both meet the objectives up to the same load and miss them from the same on: then tokens decide."""
    ours, theirs = found.capacity(one), found.capacity(other)
    return ours is not None and theirs is not None and (ours.met, ours.missed) == (theirs.met, theirs.missed)


def _overloaded(best: EngineRuns, stage: str) -> str | None:
    shares = [view.value("failure_share") for view in best.at(stage)]
    if all(share is not None and share <= FAILURES_BORNE for share in shares):
        return None
    share = best.mean(lambda view: view.value("failure_share"), stage)
    return f"{format_share(share)} of the requests to {best.label} failed"


def _run_to_run(engines: Sequence[EngineRuns]) -> list[Finding]:
    findings = []
    for engine in engines:
        apart: list[tuple[float, StageView]] = []
        for stage in stages_of(engine.runs):
            values = [view.value(DECIDING) for view in engine.at(stage.label)]
            runs = spread([value or 0.0 for value in values])
            if runs.deviation is not None and runs.mean and runs.deviation / runs.mean >= RUN_TO_RUN:
                apart.append((runs.deviation / runs.mean, stage))
        if apart:
            deviation = max(share for share, _ in apart)
            where = join_labels([stage.label for _, stage in apart])
            evidence = (
                f"{len(engine.runs)} runs of {engine.label} differ in output tokens/s at {where}: standard "
                f"deviation {format_share(deviation)}"
            )
            remedy = "repeat more often, interleave the engines, and see what else runs on the machine"
            findings.append(Finding("run_to_run", "warn", evidence, remedy, None, engine.label))
    return findings
