"""How far the model is off what was measured: each load predicted from a fit to the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from enginebench.analysis.plan.measured import MeasuredStage
from enginebench.analysis.plan.model import EngineModel, FittedModel, fit_model, futures
from enginebench.analysis.plan.not_planned import CannotPlan
from enginebench.analysis.plan.requests import FIGURES, Band, Requests, bands, figures
from enginebench.analysis.plan.simulation import ClosedLoop, serve
from enginebench.records.load import Rate

FUTURES = 7  # 2³ − 1: their speeds are evenly spaced about the usual one
MAX_ERROR = 0.25  # of a held-out prediction, above which the simulation gives no number of replicas


def fit_stages(stages: Sequence[MeasuredStage], declared_slots: int | None = None) -> FittedModel:
    """Raises `CannotPlan`."""
    return fit_model([steps for stage in stages for steps in stage.steps], declared_slots)


def replay(model: EngineModel, stage: MeasuredStage, count: int) -> list[Requests]:
    """Serve the requests of a measured stage again in `count` futures, with their lengths, and in an open loop when
    they were due. Instants count from the stage's begin."""
    requests, served = stage.requests, []
    for future in futures(count):
        engine, rng = future.usual(model), future.rng
        if isinstance(stage.load, Rate):
            served.append(serve(engine, requests.sched - stage.begin, requests.lengths, rng))
        else:
            closed = ClosedLoop(stage.end - stage.begin, stage.think)
            served.append(serve(engine, stage.starts, requests.lengths, rng, closed))
    return served


def predict(model: EngineModel, stage: MeasuredStage, count: int) -> dict[str, Band]:
    start, end = stage.start - stage.begin, stage.end - stage.begin
    return bands([figures(requests, start, end) for requests in replay(model, stage, count)])


@dataclass(frozen=True, slots=True)
class HeldOut:
    """One load that had no part in the fit: what was measured and predicted, by figure, as means over its stages."""

    stage: str
    measured: dict[str, float]
    predicted: dict[str, Band]

    def error(self, figure: str) -> float:
        """Relative: 0.03 for a prediction 3 % above the measurement; `nan` without one of them."""
        measured = self.measured[figure]
        return self.predicted[figure].median / measured - 1 if measured else math.nan

    @property
    def errors(self) -> dict[str, float]:
        return {figure: self.error(figure) for figure in FIGURES}


def predict_unseen(fitted: FittedModel, label: str, stages: Sequence[MeasuredStage]) -> HeldOut:
    """Predict stages of one load that had no part in the fit. The more of them, the less a disturbed one counts."""
    measured = [stage.figures for stage in stages]
    predicted = [predict(fitted.model, stage, FUTURES) for stage in stages]
    return HeldOut(
        label,
        {figure: fmean(stage[figure] for stage in measured) for figure in FIGURES},
        {figure: _mean([stage[figure] for stage in predicted]) for figure in FIGURES},
    )


def _mean(bands: Sequence[Band]) -> Band:
    return Band(fmean(b.median for b in bands), fmean(b.low for b in bands), fmean(b.high for b in bands))


def hold_out(stages: Sequence[MeasuredStage], slots: int | None = None) -> tuple[HeldOut, ...]:
    """Predict every load from all the others; of a single load, each of its stages from the others.

    `slots` is that of the fit to all stages: without its saturated load a fit may not know it.
    """
    several = len({stage.label for stage in stages}) > 1
    groups: dict[str, list[MeasuredStage]] = {}
    for stage in stages:
        groups.setdefault(stage.label if several else stage.name, []).append(stage)
    predictions: list[HeldOut] = []
    for label, group in sorted(groups.items(), key=lambda item: item[1][0].load.value):
        others = [stage for name, rest in groups.items() if name != label for stage in rest]
        try:
            predictions.append(predict_unseen(fit_stages(others, slots), label, group))
        except CannotPlan:
            continue
    return tuple(predictions)


@dataclass(frozen=True, slots=True)
class LargestError:
    """Of the held-out predictions: the figure and the load that was furthest off. `error` is relative, without sign."""

    error: float
    figure: str
    stage: str


def largest_error(held_out: Sequence[HeldOut]) -> LargestError | None:
    """`None` if nothing could be predicted."""
    errors = [
        LargestError(abs(error), figure, held.stage) for held in held_out for figure, error in held.errors.items()
    ]
    return max((error for error in errors if math.isfinite(error.error)), key=lambda each: each.error, default=None)
