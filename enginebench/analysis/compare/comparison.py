"""Engine against engine: the one comparison from which winner, tables, sentences and costs are made.

At every load each engine is compared with the baseline, and the best one with each other, in every compared metric.
One correction covers the tests at a load: those of the deciding metric among each other, then all the rest. With
objectives the best engine is the one that holds the most load within them, else the one that serves the most tokens; it
is the winner where it is better than each other one. Where runs are unlike, nothing is claimed of those.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from enginebench.analysis.compare.capacity import (
    CapacityComparison,
    SloCapacity,
    capacities_of,
    compare_capacities,
    judge_load,
    load_text,
    runs_at,
)
from enginebench.analysis.compare.engine_runs import (
    DECIDING,
    EngineRuns,
    common_stages,
    engine_runs_of,
    paired,
    since_due,
    stages_of,
)
from enginebench.analysis.compare.likeness import (
    different_scenarios,
    named_differences,
    reasons_to_claim_nothing,
    run_to_run,
    unlike,
)
from enginebench.analysis.compare.metric_comparison import (
    MetricComparison,
    compare_metric,
    corrected,
    judged,
    sample_of,
)
from enginebench.analysis.compare.prompts import SameAnswers, pair_by_prompt, same_answers
from enginebench.analysis.compare.ranking import baseline_of, order_of, pairs_of, stage_of_headline
from enginebench.analysis.stats.repeats import REPEATS
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.formatting import format_share
from enginebench.records.metrics import Column, columns
from enginebench.records.quality import QualityAgainst, against
from enginebench.records.rules import FAILURES_BORNE, MARGIN, SloAnswer
from enginebench.records.slo import of_tier
from enginebench.records.view import Estimate, Finding, in_order

TOO_FEW = f"a winner needs {REPEATS} repeats of each"


@dataclass(frozen=True, slots=True)
class ServedLoad:
    """What one engine served at one load, and whether it met the objectives there: `None` without objectives."""

    stage: str
    engine: str
    load: float
    unit: str
    tokens: Estimate  # output tokens/s, over the runs
    answer: SloAnswer | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All engines, best first, at every load.

    `stage` is that of the headline: the heaviest common one at which an engine meets the objectives, or without
    objectives the heaviest. `winner` is `None` where none may be named: `why` not. `unlike` holds for each engine why
    nothing is claimed of it; `differs` names in a word or two what differs from the baseline, hindrance or not.
    """

    baseline: str
    engines: tuple[str, ...]
    stage: str | None
    stages: tuple[str, ...]  # that all runs have
    loads: tuple[ServedLoad, ...]  # of every engine, lightest first
    comparisons: tuple[MetricComparison, ...]  # use `at` and `of`
    missing: tuple[str, ...]  # titles of what some run lacks at `stage`
    capacities: tuple[SloCapacity, ...]
    capacity_comparisons: tuple[CapacityComparison, ...]  # with the baseline, and of the best with each other
    answers: tuple[SameAnswers, ...]
    quality: tuple[QualityAgainst, ...]  # the baseline first; empty where no run asked for it
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
    def not_claimed(self) -> str | None:
        """Why nothing may be claimed of an engine, the first one; `None` where something may of each."""
        return next(iter(self.unlike.values()), None)

    @property
    def others(self) -> tuple[str, ...]:
        """All engines but the baseline."""
        return tuple(label for label in self.engines if label != self.baseline)

    def at(self, stage: str | None, engine: str, over: str | None = None) -> tuple[MetricComparison, ...]:
        """All metrics of an engine over another, or over the baseline."""
        pair = (engine, over or self.baseline)
        here = [each for each in self.comparisons if each.stage == stage]
        forward = tuple(each for each in here if (each.engine, each.over) == pair)
        return forward or tuple(each.reversed for each in here if (each.over, each.engine) == pair)

    def of(self, stage: str | None, engine: str, key: str, over: str | None = None) -> MetricComparison | None:
        return next((each for each in self.at(stage, engine, over) if each.column.key == key), None)

    def capacity(self, engine: str) -> SloCapacity | None:
        return next((capacity for capacity in self.capacities if capacity.engine == engine), None)

    def capacity_ratio(self, engine: str, over: str | None = None) -> CapacityComparison | None:
        """`None` where one of the two has no capacity, or another unit of load."""
        pair = (engine, over or self.baseline)
        for each in self.capacity_comparisons:
            if (each.engine, each.over) == pair:
                return each
            if (each.over, each.engine) == pair:
                return each.reversed
        return None


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
    base = baseline_of(list(by_label), baseline)
    scenarios = different_scenarios(summaries)
    comparable = scenarios is None or allow_different
    stages = common_stages(summaries) if comparable else []
    capacities = capacities_of(summaries) if comparable else ()
    chosen = stage_of_headline(summaries, stages, capacities, stage)
    differences = [*([scenarios] if scenarios else []), *(_differences(by_label[base], engines, chosen))]
    unlike_engines = reasons_to_claim_nothing(engines, base, differences, allow_different, allow_invalid)
    order = order_of(engines, chosen, capacities)
    compared = columns("compared", since_due(summaries))
    labels = [each.label for each in stages_of(summaries)] if comparable else []
    ran = [(label, engine) for label in labels for engine in order if _ran(by_label[engine], label)]
    comparison = Comparison(
        baseline=base,
        engines=order,
        stage=chosen,
        stages=tuple(stages),
        loads=tuple(_served(by_label[engine], label) for label, engine in ran),
        comparisons=tuple(
            judged(each, margin, unlike_engines.get(each.engine) or unlike_engines.get(each.over))
            for label in labels
            for each in _at(label, pairs_of(order, base), by_label, compared, by_prompt=label == chosen)
        ),
        missing=() if chosen is None else _missing(chosen, engines, compared),
        capacities=capacities,
        capacity_comparisons=tuple(_capacity_comparisons(order, base, capacities, by_label, unlike_engines, margin)),
        answers=() if chosen is None else _answers(by_label, base, order, chosen),
        quality=_quality(by_label, base),
        winner=None,
        why=None,
        unlike=unlike_engines,
        differs=named_differences(engines, differences),
        findings=in_order([*differences, *run_to_run(engines)]),
        margin=margin,
        runs={engine.label: len(engine.runs) for engine in engines},
    )
    why = _why_no_winner(comparison, by_label)
    return replace(comparison, winner=None if why else order[0], why=why)


def _capacity_comparisons(
    order: Sequence[str],
    base: str,
    capacities: Sequence[SloCapacity],
    engines: Mapping[str, EngineRuns],
    unlike_engines: Mapping[str, str],
    margin: float,
) -> Iterator[CapacityComparison]:
    by_engine = {capacity.engine: capacity for capacity in capacities}
    for engine, over in pairs_of(order, base):
        ours, theirs = by_engine.get(engine), by_engine.get(over)
        if ours is not None and theirs is not None and ours.unit == theirs.unit:
            few = min(len(engines[label].runs) for label in (engine, over)) < REPEATS
            why_not = unlike_engines.get(engine) or unlike_engines.get(over) or (TOO_FEW if few else None)
            yield _in_enough_runs(compare_capacities(ours, theirs, margin, why_not), by_engine, engines)


def _in_enough_runs(
    comparison: CapacityComparison, capacities: Mapping[str, SloCapacity], engines: Mapping[str, EngineRuns]
) -> CapacityComparison:
    """Better and worse rest on a load that one of the two meets, and on one that the other misses."""
    if comparison.verdict not in {"better", "worse"}:
        return comparison
    pair = (comparison.engine, comparison.over)
    best, other = pair if comparison.verdict == "better" else pair[::-1]
    why = _measured_seldom(capacities[best], engines[best], capacities[best].met)
    why = why or _measured_seldom(capacities[other], engines[other], capacities[other].missed)
    return comparison if why is None else replace(comparison, verdict="not shown", why=why)


def _measured_seldom(capacity: SloCapacity, engine: EngineRuns, *ends: float | None) -> str | None:
    """Why an end of a bracket decides nothing: fewer runs measured that load than a winner needs."""
    for load in ends:
        if load is not None and (runs := runs_at(engine, capacity, load)) < REPEATS:
            return f"{TOO_FEW} at {load_text(load, capacity.unit)}: {engine.label} has {runs}"
    return None


def _quality(engines: Mapping[str, EngineRuns], base: str) -> tuple[QualityAgainst, ...]:
    """By the first run of each that asked: the text is the same, and so are greedy engines."""
    quality = {
        label: next((run.quality for run in engine.runs if run.quality is not None), None)
        for label, engine in engines.items()
    }
    if not any(quality.values()):
        return ()
    return tuple(against(label, quality[label], quality[base]) for label in dict.fromkeys([base, *engines]))


def _ran(engine: EngineRuns, stage: str) -> bool:
    """Every one of its runs."""
    return len(engine.at(stage)) == len(engine.runs)


def _served(engine: EngineRuns, stage: str) -> ServedLoad:
    view = engine.at(stage)[0]
    objectives = of_tier(engine.runs[0].objectives)
    judged_here = bool(objectives) and all(each.judgement(o) for each in engine.at(stage) for o in objectives)
    answer = judge_load(engine, stage, objectives).answer if judged_here else None
    return ServedLoad(stage, engine.label, view.load, view.load_unit, engine.estimate(stage, DECIDING), answer)


def _differences(base: EngineRuns, engines: Sequence[EngineRuns], stage: str | None) -> list[Finding]:
    ordered = [base, *(engine for engine in engines if engine is not base)]
    return unlike([run for engine in ordered for run in engine.runs], stage)


def _at(
    stage: str,
    pairs: Sequence[tuple[str, str]],
    engines: Mapping[str, EngineRuns],
    compared: Sequence[Column],
    by_prompt: bool,
) -> list[MetricComparison]:
    """Of the engines of which every run has the stage."""
    samples = {
        label: [sample_of(engine, stage, column) for column in compared]
        for label, engine in engines.items()
        if _ran(engine, stage)
    }
    latencies = list(dict.fromkeys(column.name for column in compared if column.statistic != "value"))
    tested: list[MetricComparison] = []
    for engine, over in pairs:
        if engine not in samples or over not in samples:
            continue
        ours, theirs = engines[engine], engines[over]
        pairs_of_runs = paired([ours, theirs])
        prompts = pair_by_prompt(ours.runs, theirs.runs, stage, latencies) if by_prompt and pairs_of_runs else {}
        for column, our_sample, their_sample in zip(compared, samples[engine], samples[over], strict=True):
            comparison = compare_metric(stage, column, our_sample, their_sample, pairs_of_runs)
            if comparison is not None:
                tested.append(replace(comparison, by_prompt=prompts.get(column.name)))
    return corrected(tested, DECIDING)


def _missing(stage: str, engines: Sequence[EngineRuns], compared: Sequence[Column]) -> tuple[str, ...]:
    """What some runs have at the stage and others lack."""
    views = [view for engine in engines for view in engine.at(stage)]
    lacking = []
    for column in compared:
        values = [view.value(column.name, column.statistic) for view in views]
        if None in values and any(value is not None for value in values):
            lacking.append(column.full_title)
    return tuple(lacking)


def _answers(engines: Mapping[str, EngineRuns], base: str, order: Sequence[str], stage: str) -> tuple[SameAnswers, ...]:
    return tuple(same_answers(engines[label].runs, engines[base].runs, stage) for label in order if label != base)


def _why_no_winner(comparison: Comparison, engines: Mapping[str, EngineRuns]) -> str | None:
    """`None` where the first engine is the winner: better than each other one, in enough runs that are alike and served
    what was asked."""
    best, others = comparison.engines[0], comparison.engines[1:]
    if not others:
        return "there is only one engine"
    if comparison.stage is None and not comparison.capacities:
        return "the runs have no stage in common"
    for label in (best, *others):
        if label in comparison.unlike:
            return comparison.unlike[label]
    if comparison.stage is not None and (failed := _overloaded(engines[best], comparison.stage)) is not None:
        return failed
    if min(comparison.runs.values()) < REPEATS:
        return TOO_FEW
    if comparison.capacities and all(capacity.met is None for capacity in comparison.capacities):
        return f"no load is known to meet {comparison.capacities[0].slo}"
    return next((why for other in others if (why := _not_better(comparison, engines, best, other)) is not None), None)


def _not_better(comparison: Comparison, engines: Mapping[str, EngineRuns], best: str, other: str) -> str | None:
    ratio = comparison.capacity_ratio(best, other)
    if ratio is not None and ratio.verdict == "better":
        return None
    if ratio is not None and not same_bracket(comparison, best, other):
        unit = comparison.capacities[0].unit
        return f"whether {best} holds more {unit} than {other} is not shown ({ratio.why})"
    if ratio is not None:  # both hold the same load, as far as enough runs show it
        for label in (best, other):
            capacity = comparison.capacity(label)
            assert capacity is not None, "their ratio is known"
            if (why := _measured_seldom(capacity, engines[label], capacity.met, capacity.missed)) is not None:
                return why
    tokens = comparison.of(comparison.stage, best, DECIDING, other)
    if tokens is None:
        return f"the tokens of {best} and {other} were not counted in every run"
    return None if tokens.verdict == "better" else f"against {other}, {tokens.why or 'no difference is shown'}"


def same_bracket(comparison: Comparison, engine: str, other: str) -> bool:
    """Both meet the objectives up to the same load and miss them from the same on: then tokens decide."""
    ours, theirs = comparison.capacity(engine), comparison.capacity(other)
    return ours is not None and theirs is not None and (ours.met, ours.missed) == (theirs.met, theirs.missed)


def _overloaded(best: EngineRuns, stage: str) -> str | None:
    shares = [view.value("failure_share") for view in best.at(stage)]
    if all(share is not None and share <= FAILURES_BORNE for share in shares):
        return None
    share = best.mean(lambda view: view.value("failure_share"), stage)
    return f"{format_share(share)} of the requests to {best.label} failed"
