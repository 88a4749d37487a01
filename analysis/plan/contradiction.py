"""Whether the model contradicts the measurements that it was fitted to: at a measured load it meets an objective that
the replica missed there, or misses one that was met. Then its law is not that of the engine, and the number of replicas
that it gives is wrong, whatever the band around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from analysis.plan.measured import MeasuredStage
from analysis.plan.model import EngineModel
from analysis.plan.outcome import Band, Requests, band, within
from analysis.plan.predict import replayed
from analysis.plan.replicas import share_of
from analysis.summary.slo import objective_text
from records.formatting import format_share
from records.slo import Objective

SEEDS = 5
APART = 1.5  # times as many misses on one side as on the other; less is the noise of a stage


@dataclass(frozen=True, slots=True)
class Contradiction:
    """One objective at one load: the share of requests that met it, and what the model says of the same requests."""

    load: str
    objective: Objective
    measured: float
    predicted: Band

    @property
    def sentence(self) -> str:
        return (
            f"at {self.load} the model has {format_share(self.predicted.median)} within "
            f"{objective_text(self.objective)}, and {format_share(self.measured)} were measured"
        )


def contradiction(
    model: EngineModel, stages: Sequence[MeasuredStage], objectives: Sequence[Objective]
) -> Contradiction | None:
    """The widest one; `None` where the model and the measurements agree on which loads meet the objectives."""
    loads: dict[str, list[MeasuredStage]] = {}
    for stage in stages:
        loads.setdefault(stage.label, []).append(stage)
    found = []
    for load, same in loads.items():
        measured = [stage.requests.between(stage.start, stage.end) for stage in same]
        predicted = [_seeds(model, stage) for stage in same]
        for objective in objectives:
            seeds = zip(*([_share(one, objective) for one in seeds] for seeds in predicted), strict=True)
            share = fmean(_share(one, objective) for one in measured)
            found.append(Contradiction(load, objective, share, band([fmean(seed) for seed in seeds])))
    return max(filter(_opposed, found), key=lambda one: abs(one.predicted.median - one.measured), default=None)


def _seeds(model: EngineModel, stage: MeasuredStage) -> list[Requests]:
    start, end = stage.start - stage.begin, stage.end - stage.begin
    return [one.between(start, end) for one in replayed(model, stage, SEEDS)]


def _share(requests: Requests, objective: Objective) -> float:
    return share_of([(within(requests, objective), 1.0)])


def _opposed(one: Contradiction) -> bool:
    """Beyond what seeds and a few requests explain."""
    q, predicted = one.objective.q, one.predicted.median
    fewer, more = sorted((1 - one.measured, 1 - predicted))
    return (one.measured >= q) != (predicted >= q) and not one.predicted.holds(one.measured) and more > APART * fewer
