"""Does an engine meet its service-level objectives at a load? Judged over all repeats of that load together.

Three values always go together: the status as measured, the share of requests within every limit, and whether the
status is confirmed. docs/metrics.md defines them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from enginebench.analysis.verdict.pooling import pooled
from enginebench.records.rules import nearest_rank, overall
from enginebench.records.slo import Objective
from enginebench.records.view import Judgement, Missing, StageView

MIN_AGREEING_RUNS = 5  # from here on a status that every run has by itself is confirmed (sign test)


class Status(Enum):
    MET = "met"
    MISSED = "missed"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True)
class ObjectiveVerdict:
    """One objective over all repeats: `judgement` is the pooled share with its interval."""

    objective: Objective
    status: Status
    judgement: Judgement


@dataclass(frozen=True, slots=True)
class SloVerdict:
    """One load against all objectives of a tier, over its `runs` with requests.

    `share` of the `n` attempted requests were within every limit. `agreeing` runs have the status by themselves.
    `seconds_needed` is about how much longer the load would have to be measured until its status is confirmed; `None`
    if that is unknown, or it is confirmed.
    """

    status: Status
    confirmed: bool
    share: float | None
    n: int
    runs: int
    agreeing: int
    objectives: tuple[ObjectiveVerdict, ...]
    seconds_needed: float | None = None
    missing: Missing | None = None  # why it was not measured

    @property
    def within(self) -> int:
        """Requests within every limit."""
        return 0 if self.share is None else round(self.share * self.n)

    @property
    def by_runs(self) -> bool:
        """Whether the agreement of the runs alone confirms it."""
        return self.runs >= MIN_AGREEING_RUNS and self.agreeing == self.runs

    @property
    def worst(self) -> ObjectiveVerdict | None:
        """The objective that is missed by most."""
        missed = [verdict for verdict in self.objectives if verdict.status is Status.MISSED]
        return min(missed, key=lambda verdict: (verdict.judgement.share.value or 0) - verdict.objective.q, default=None)


def judge(stages: Sequence[StageView], objectives: Sequence[Objective]) -> SloVerdict:
    """Judge the repeats of one load; every one of `objectives`, which belong to one tier, was judged in each."""
    measured = [stage for stage in stages if stage.requests]
    verdicts = tuple(_pool(objective, stages) for objective in objectives)
    status = _combine([verdict.status for verdict in verdicts])
    share, n = _share_within(measured, objectives)
    runs = [_combine([_status([_judgement(stage, objective)]) for objective in objectives]) for stage in measured]
    agreeing = sum(run is status for run in runs)
    by_interval = overall([verdict.judgement.answer for verdict in verdicts]) == status.value
    by_runs = len(measured) == len(stages) >= MIN_AGREEING_RUNS and agreeing == len(runs)
    confirmed = status is not Status.NOT_MEASURED and (by_interval or by_runs)
    return SloVerdict(
        status=status,
        confirmed=confirmed,
        share=share,
        n=n,
        runs=len(measured),
        agreeing=agreeing,
        objectives=verdicts,
        seconds_needed=None if confirmed else _seconds_needed(measured, verdicts),
        missing=_missing(measured, verdicts) if status is Status.NOT_MEASURED else None,
    )


def _pool(objective: Objective, stages: Sequence[StageView]) -> ObjectiveVerdict:
    judgements = [_judgement(stage, objective) for stage in stages]
    return ObjectiveVerdict(objective, _status(judgements), pooled(judgements))


def _judgement(stage: StageView, objective: Objective) -> Judgement:
    return stage.judgement(objective) or Judgement.without(objective)


def _status(judgements: Sequence[Judgement]) -> Status:
    """Whether the nearest-rank percentile of the pooled requests is within the limit, whatever became of those that
    were cut off."""
    known = [judgement for judgement in judgements if judgement.share.value is not None]
    if not known:
        return Status.NOT_MEASURED
    good = sum(round((judgement.share.value or 0.0) * judgement.share.n) for judgement in known)
    unknown = sum(judgement.unknown for judgement in judgements)
    n = sum(judgement.share.n for judgement in known) + unknown
    rank = nearest_rank(n, known[0].objective.q)
    if good >= rank:
        return Status.MET
    return Status.MISSED if good + unknown < rank else Status.NOT_MEASURED


def _combine(statuses: Sequence[Status]) -> Status:
    if Status.MISSED in statuses:
        return Status.MISSED
    return Status.NOT_MEASURED if Status.NOT_MEASURED in statuses or not statuses else Status.MET


def _share_within(stages: Sequence[StageView], objectives: Sequence[Objective]) -> tuple[float | None, int]:
    """Of the attempted requests of all runs, those within every limit of the tier."""
    tier = objectives[0].tier if objectives else ""
    shares = [attained for stage in stages if (attained := stage.attained.get(tier)) is not None]
    n = sum(share.n for share in shares)
    return (sum((share.value or 0.0) * share.n for share in shares) / n if n else None), n


def _seconds_needed(stages: Sequence[StageView], verdicts: Sequence[ObjectiveVerdict]) -> float | None:
    undecided = [verdict.judgement for verdict in verdicts if verdict.judgement.answer == "not enough evidence"]
    needed = [judgement.requests_needed for judgement in undecided]
    known = [count for count in needed if count is not None]
    requests, seconds = sum(stage.requests for stage in stages), sum(stage.seconds for stage in stages)
    return max(known) * seconds / requests if known and len(known) == len(needed) and requests else None


def _missing(stages: Sequence[StageView], verdicts: Sequence[ObjectiveVerdict]) -> Missing:
    """Without requests nothing was observed; else the end of the run, or an unknown token count, hides the outcome."""
    cut_off = stages and any(verdict.judgement.unknown for verdict in verdicts)
    return Missing.CUT_OFF if cut_off else Missing.NOT_OBSERVED
