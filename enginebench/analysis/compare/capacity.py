"""How much load an engine bears within its objectives: every load judged over all repeats (`pooling.py`), and the
bracket between the highest measured load that meets all of them and the lowest that misses one.

Nothing between two measured loads is interpolated. A load that a search certified keeps the search's own verdict, which
allowed for being looked at many times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from enginebench.analysis.compare.engine_runs import EngineRuns, by_load, engine_runs_of
from enginebench.analysis.compare.limit import Limit, limit_of
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.analysis.verdict.pooling import pooled
from enginebench.records.formatting import counted, format_seconds, format_share, in_words, join_labels, significant
from enginebench.records.rules import MARGIN, Claim, SloAnswer, claim_of_brackets, opposite, overall
from enginebench.records.search import SearchRecord
from enginebench.records.slo import Objective, of_tier
from enginebench.records.view import Estimate, Judgement, StageView

OF_SEARCH: dict[str, SloAnswer] = {"met": "met", "missed": "missed", "undecided": "not enough evidence"}


@dataclass(frozen=True, slots=True)
class LoadJudgement:
    """One engine at one load, all repeats together: each objective, and all of them. `runs` are those with requests.
    `seconds_needed` is about how much more of the same load would decide, where that can be said."""

    label: str
    load: float
    objectives: tuple[Judgement, ...]
    answer: SloAnswer
    runs: int
    requests: int
    seconds_needed: float | None = None

    @property
    def need(self) -> str:
        """What an answer lacks: `≈ 4.0 min more would decide`, why no interval is known, or both; or nothing."""
        undecided = [each for each in self.objectives if each.answer == "not enough evidence"]
        parts = list(dict.fromkeys(each.share.missing.value for each in undecided if each.share.missing))
        if self.seconds_needed is not None:
            parts.insert(0, f"≈ {format_seconds(self.seconds_needed)} more would decide")
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class SloCapacity:
    """The load that one replica of an engine bears within all objectives, between two measured loads.

    `met` is the highest measured load that meets them, `None` where none is known to; `missed` the lowest that does
    not, `None` where none does. `undecided` are the loads with too little evidence.
    """

    engine: str
    unit: str
    objectives: tuple[Objective, ...]
    loads: tuple[LoadJudgement, ...]  # lightest first
    met: float | None
    missed: float | None
    undecided: tuple[float, ...]
    limit: Limit | None

    @property
    def slo(self) -> str:
        return " and ".join(objective.text for objective in self.objectives)

    @property
    def them(self) -> str:
        """The objectives, where they were named before."""
        return "it" if len(self.objectives) == 1 else "them"

    @property
    def stage(self) -> str | None:
        """The stage at `met`."""
        return next((judgement.label for judgement in self.loads if judgement.load == self.met), None)

    @property
    def bracket(self) -> str:
        """`14 users (20 miss it)`, for a cell."""
        if self.met is None:
            return f"< {load_text(self.missed, self.unit)}" if self.missed is not None else "undecided"
        return f"{load_text(self.met, self.unit)} ({self.beyond})"

    @property
    def beyond(self) -> str:
        """What is known of the loads above those that meet the objectives: `20 miss it`"""
        if self.missed is not None:
            return f"{load_text(self.missed)} miss {self.them}"
        above = in_words([load_text(load) for load in self.undecided_above])
        return f"{above} undecided" if above else "the most measured"

    @property
    def undecided_above(self) -> list[float]:
        """The undecided loads above those that meet the objectives."""
        return [load for load in self.undecided if load > (self.met or 0.0)]

    @property
    def between(self) -> str:
        """`12 and 14 users are undecided: at 12, ≈ 4.0 min more would decide`; empty where all loads are decided."""
        undecided = [judgement for judgement in self.loads if judgement.load in self.undecided_above]
        if not undecided:
            return ""
        first, labels = undecided[0], join_labels([judgement.label for judgement in undecided])
        where = f"at {load_text(first.load)}, " if len(undecided) > 1 else ""
        need = f": {where}{first.need}" if first.need else ""
        return f"{labels} {'is' if labels == '1 user' else 'are'} undecided{need}"

    @property
    def sentence(self) -> str:
        """What was measured, and what was not."""
        between = f"; {self.between}" if self.between else ""
        limit = f", limited by {self.limit.sentence}" if self.limit is not None else ""
        if self.met is None and self.missed is None:
            return f"{self.engine}: no load is known to meet {self.slo}{between}."
        if self.met is None:
            return f"{self.engine} misses {self.slo} from {load_text(self.missed, self.unit)} on{limit}{between}."
        holds = f"{self.engine} holds {load_text(self.met, self.unit)} within {self.slo}"
        if self.missed is None:
            return f"{holds}{between}." if between else f"{holds}, the most that was measured."
        return f"{holds} and misses {self.them} at {load_text(self.missed)}{limit}{between}."


def load_text(load: float | None, unit: str = "") -> str:
    """`14`, or with a unit `14 users`, `1 user`, `1 req/s`."""
    if load is None:
        return "none"
    number = f"{load:g}" if float(load).is_integer() else significant(load)
    if load == 1 and not unit.endswith("/s"):
        unit = unit.removesuffix("s")
    return f"{number} {unit}".rstrip()


def capacities_of(summaries: Sequence[RunSummary], tier: str | None = None) -> tuple[SloCapacity, ...]:
    """Of each engine whose loads make an axis and were judged, within the objectives of a tier (the first one). None
    where the engines were judged by different objectives: their capacities do not compare."""
    if len({of_tier(run.objectives, tier) for run in summaries}) > 1:
        return ()
    capacities = [capacity_of(engine, tier) for engine in engine_runs_of(summaries)]
    return tuple(capacity for capacity in capacities if capacity is not None)


def slo_capacity(runs: Sequence[RunSummary], tier: str | None = None) -> SloCapacity | None:
    """Of runs of one engine; `None` where its stages differ in more than their load, or no objective was judged."""
    (engine,) = engine_runs_of(runs)
    return capacity_of(engine, tier)


def capacity_of(engine: EngineRuns, tier: str | None = None) -> SloCapacity | None:
    objectives = of_tier(engine.runs[0].objectives, tier)
    if not objectives:
        return None
    if all(_searched_for(run, objectives) for run in engine.runs):
        return _searched(engine, objectives)
    judgements = judgements_of(engine, objectives)
    return _bracketed(engine, judgements, objectives) if judgements and by_load(engine.runs) else None


def _bracketed(
    engine: EngineRuns, judgements: Sequence[LoadJudgement], objectives: tuple[Objective, ...]
) -> SloCapacity:
    loads = tuple(sorted(judgements, key=lambda judgement: judgement.load))
    missed = min((judgement.load for judgement in loads if judgement.answer == "missed"), default=None)
    # A load is within capacity only if no lighter one misses: attainment falls with the load.
    below = [judgement for judgement in loads if missed is None or judgement.load < missed]
    return SloCapacity(
        engine=engine.label,
        unit=engine.stages[0].load_unit,
        objectives=objectives,
        loads=loads,
        met=(met := max((judgement.load for judgement in below if judgement.answer == "met"), default=None)),
        missed=missed,
        undecided=tuple(judgement.load for judgement in below if judgement.answer == "not enough evidence"),
        limit=_limit(engine, loads, met, missed),
    )


def _searched_for(run: RunSummary, objectives: Sequence[Objective]) -> bool:
    """Whether the run is a search for the capacity within just these objectives."""
    return run.search is not None and run.search.objectives == tuple(map(str, objectives))


def _searched(engine: EngineRuns, objectives: tuple[Objective, ...]) -> SloCapacity:
    searches = _searches(engine.runs)
    met, missed = _bracket_of(searches)
    loads = judgements_of(engine, objectives)
    limit = _limit(engine, loads, met, missed) if any(each.load == missed for each in loads) else None
    return SloCapacity(engine.label, searches[0].unit, objectives, loads, met, missed, (), limit)


def _searches(runs: Sequence[RunSummary]) -> list[SearchRecord]:
    return [run.search for run in runs if run.search is not None]


def _bracket_of(searches: Sequence[SearchRecord]) -> tuple[float | None, float | None]:
    """What the searches certified: of several the bracket that holds all of theirs."""
    met, missed = [search.met for search in searches], [search.missed for search in searches]
    lowest = min((load for load in met if load is not None), default=None) if None not in met else None
    highest = max((load for load in missed if load is not None), default=None) if None not in missed else None
    return lowest, highest


def judgements_of(engine: EngineRuns, objectives: Sequence[Objective]) -> tuple[LoadJudgement, ...]:
    """Of every stage at which all the objectives were judged, by label, in the order of the runs."""
    labels = dict.fromkeys(stage.label for stage in engine.stages if all(map(stage.judgement, objectives)))
    return tuple(judge_load(engine, label, objectives) for label in labels)


def judge_load(engine: EngineRuns, label: str, objectives: Sequence[Objective]) -> LoadJudgement:
    """All repeats of a stage together. A search's own verdict stands where it has one."""
    stages = engine.at(label)
    judgements = tuple(pooled([_judgement(stage, objective) for stage in stages]) for objective in objectives)
    requests, seconds = sum(stage.requests for stage in stages), sum(stage.seconds for stage in stages)
    needed = [judgement.requests_needed for judgement in judgements if judgement.answer == "not enough evidence"]
    known = [count for count in needed if count is not None]
    longer = max(known) * seconds / requests if known and len(known) == len(needed) and requests else None
    answer = _certified(engine, stages, objectives) or overall([judgement.answer for judgement in judgements])
    runs = sum(stage.requests > 0 for stage in stages)
    return LoadJudgement(label, stages[0].load, judgements, answer, runs, requests, longer)


def _judgement(stage: StageView, objective: Objective) -> Judgement:
    return stage.judgement(objective) or Judgement.without(objective)


def _certified(engine: EngineRuns, stages: Sequence[StageView], objectives: Sequence[Objective]) -> SloAnswer | None:
    """The verdict of searches on a load of their own, by their certified bracket: their probes were chosen by what the
    ones before had shown, and are no samples to be pooled. `None` where the load is not of searches alone."""
    of_load = [run for run in engine.runs if any(stage in run.stages for stage in stages)]
    searched = next(
        (runs for runs in (engine.runs, of_load) if all(_searched_for(one, objectives) for one in runs)), None
    )
    if searched is None:
        return None
    met, missed = _bracket_of(_searches(searched))
    if met is not None and stages[0].load <= met:
        return "met"
    return "missed" if missed is not None and stages[0].load >= missed else "not enough evidence"


def runs_at(engine: EngineRuns, capacity: SloCapacity, load: float) -> int:
    """The runs that the answer at an end of its bracket rests on: each search certifies a bracket of its own, whichever
    loads it probed."""
    if all(_searched_for(run, capacity.objectives) for run in engine.runs):
        return len(engine.runs)
    return next((each.runs for each in capacity.loads if each.load == load), 0)


def _limit(engine: EngineRuns, loads: Sequence[LoadJudgement], met: float | None, missed: float | None) -> Limit | None:
    if missed is None:
        return None
    beyond = next(judgement for judgement in loads if judgement.load == missed)
    failing = [each for each in beyond.objectives if each.answer == "missed"] or list(beyond.objectives)
    worst = min(failing, key=lambda each: (each.share.value or 0.0) - each.objective.q)
    below, above = ([stage for stage in engine.stages if stage.load == load] for load in (met, missed))
    return limit_of(worst.objective, below, above)


@dataclass(frozen=True, slots=True)
class CapacityComparison:
    """The capacity of one engine over another's: the ratio of the highest loads that meet the objectives, and the
    range that the two brackets allow. `why`: the verdict is neither better nor worse."""

    engine: str
    over: str
    ratio: Estimate
    verdict: Claim
    why: str | None = None

    @property
    def reversed(self) -> CapacityComparison:
        return CapacityComparison(self.over, self.engine, self.ratio.inverse, opposite(self.verdict), self.why)


def compare_capacities(
    ours: SloCapacity, theirs: SloCapacity, margin: float = MARGIN, why_not: str | None = None
) -> CapacityComparison:
    """Brackets, not samples: the true capacity of each lies between its own `met` and `missed`. Without a `met` there
    is no ratio, and yet an end that it lies beyond. Better or worse is claimed where the brackets do not overlap and
    the ratio is at least `margin`; `why_not` says why nothing may be claimed."""
    low = ours.met / theirs.missed if ours.met is not None and theirs.missed else 0.0
    high = ours.missed / theirs.met if ours.missed is not None and theirs.met else math.inf
    value = ours.met / theirs.met if ours.met is not None and theirs.met else None
    verdict, why = claim_of_brackets(value, low, high, margin)
    if why_not is not None:
        verdict, why = "not shown", why_not
    return CapacityComparison(ours.engine, theirs.engine, Estimate(value, low, high), verdict, why)


def objective_lines(engine: EngineRuns) -> list[tuple[SloAnswer, str]]:
    """For each objective its answer over all stages, and a sentence on which stages gave which."""
    objectives = engine.runs[0].objectives
    if engine.runs[0].search is not None or not objectives:  # a search has a table of its own
        return []
    judgements = judgements_of(engine, objectives)
    return [_line(engine, judgements, index) for index in range(len(objectives))] if judgements else []


def _line(engine: EngineRuns, judgements: Sequence[LoadJudgement], index: int) -> tuple[SloAnswer, str]:
    objective, parts = judgements[0].objectives[index].objective, []
    for answer in ("met", "not enough evidence", "missed"):
        stages = [each for each in judgements if each.objectives[index].answer == answer]
        if stages and answer == "met":
            parts.append(f"met at {join_labels([each.label for each in stages])}")
        elif stages:
            parts.append(f"{answer} at {', '.join(f'{each.label} ({_share_text(each, index)})' for each in stages)}")
    if len(parts) == 1:  # the answer that stands before the sentence
        parts = [parts[0][parts[0].index("at ") :]]
    runs = max(judgement.runs for judgement in judgements)
    repeats = f" ({counted(runs, 'run')})" if runs > 1 else ""
    answers = [judgement.objectives[index].answer for judgement in judgements]
    return overall(answers), f"{engine.label}{repeats}, {objective.text}: {'; '.join(parts)}"


def _share_text(judgement: LoadJudgement, index: int) -> str:
    of_objective = judgement.objectives[index]
    share = of_objective.share.value
    within = "" if share is None else f"{format_share(share)} within"
    need = judgement.need if of_objective.answer == "not enough evidence" else ""
    return ", ".join(filter(None, (within, need)))
