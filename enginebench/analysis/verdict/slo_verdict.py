"""Judge whether an engine meets its service-level objectives at a load, over all repeats of that load together.

Three values always go together: the status as measured, the share of requests within every limit, and whether the
status is confirmed. docs/metrics.md defines them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from enginebench.analysis.verdict.pooling import pooled
from enginebench.records.rules import as_measured, overall
from enginebench.records.slo import Objective
from enginebench.records.view import ClassView, Judgement, Missing, StageView

MIN_AGREEING_RUNS = 5  # runs with the same status that confirm it (sign test)


class Status(Enum):
    MET = "met"
    MISSED = "missed"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True)
class ObjectiveVerdict:
    """An objective over all repeats; `judgement` is the pooled share with its interval."""

    objective: Objective
    status: Status
    judgement: Judgement


@dataclass(frozen=True, slots=True)
class SloVerdict:
    """A load against all objectives, over its `runs` repeats.

    `share` of the `n` attempted requests were within every limit. `agreeing` runs have the status individually.
    `missing` says why the status is not measured.
    """

    status: Status
    confirmed: bool
    share: float | None
    n: int
    runs: int
    agreeing: int
    objectives: tuple[ObjectiveVerdict, ...]
    missing: Missing | None = None

    @property
    def by_runs(self) -> bool:
        """Return whether the agreement of the runs is enough to confirm the status (sign test)."""
        return self.runs >= MIN_AGREEING_RUNS and self.agreeing == self.runs


def judge(stages: Sequence[StageView], objectives: Sequence[Objective]) -> SloVerdict:
    """Judge the repeats of one load by the objectives."""
    verdicts = tuple(_pool(objective, stages) for objective in objectives)
    status = _combine([verdict.status for verdict in verdicts])
    share, n = _share_within(stages)
    runs = [_combine([_status([stage], objective) for objective in objectives]) for stage in stages]
    verdict = SloVerdict(
        status=status,
        confirmed=overall([verdict.judgement.answer for verdict in verdicts]) == status.value,
        share=share,
        n=n,
        runs=len(stages),
        agreeing=runs.count(status),
        objectives=verdicts,
        missing=_missing(stages, objectives) if status is Status.NOT_MEASURED else None,
    )
    return replace(verdict, confirmed=True) if verdict.by_runs and status is not Status.NOT_MEASURED else verdict


def status_of_class(views: Sequence[ClassView]) -> Status | None:
    """Judge a class of requests by its own objectives over all repeats of a load; `None` if it has none."""
    objectives = dict.fromkeys(judgement.objective for view in views for judgement in view.judgements)
    return _combine([_status(views, objective) for objective in objectives]) if objectives else None


def _pool(objective: Objective, stages: Sequence[StageView]) -> ObjectiveVerdict:
    judgements = [_judgement(stage, objective) for stage in stages]
    return ObjectiveVerdict(objective, _status(stages, objective), pooled(judgements))


def _judgement(stage: StageView | ClassView, objective: Objective) -> Judgement:
    own = (judgement for judgement in stage.judgements if judgement.objective == objective)
    return next(own, Judgement.not_measured(objective))


def _status(stages: Sequence[StageView] | Sequence[ClassView], objective: Objective) -> Status:
    """Return whether the nearest-rank percentile of the pooled requests is within the limit, for any outcome of cut-off
    requests. The status is unknown if the tokens of some requests are unknown, so that they could not be judged.
    """
    judgements = [_judgement(stage, objective) for stage in stages if stage.requests]
    if not judgements or any(judgement.share.value is None and not judgement.unknown for judgement in judgements):
        return Status.NOT_MEASURED
    good = sum(round((judgement.share.value or 0.0) * judgement.share.n) for judgement in judgements)
    unknown = sum(judgement.unknown for judgement in judgements)
    met = as_measured(good, unknown, sum(judgement.share.n for judgement in judgements) + unknown, objective.q)
    return Status.NOT_MEASURED if met is None else Status.MET if met else Status.MISSED


def _combine(statuses: Sequence[Status]) -> Status:
    if Status.MISSED in statuses:
        return Status.MISSED
    return Status.NOT_MEASURED if Status.NOT_MEASURED in statuses or not statuses else Status.MET


def _share_within(stages: Sequence[StageView]) -> tuple[float | None, int]:
    """Return the share of attempted requests of all runs that were within every limit, and the number attempted."""
    shares = [stage.attained for stage in stages if stage.attained is not None]
    n = sum(share.n for share in shares)
    return (sum((share.value or 0.0) * share.n for share in shares) / n if n else None), n


def _missing(stages: Sequence[StageView], objectives: Sequence[Objective]) -> Missing:
    """Return the code: something was not observed, or the deciding requests were cut off or have unknown tokens."""
    judgements = [_judgement(stage, objective) for stage in stages if stage.requests for objective in objectives]
    reasons = {judgement.share.missing for judgement in judgements}
    if Missing.UNCOUNTED in reasons:
        return Missing.UNCOUNTED
    cut_off = Missing.NOT_OBSERVED not in reasons and any(judgement.unknown for judgement in judgements)
    return Missing.CUT_OFF if cut_off else Missing.NOT_OBSERVED
