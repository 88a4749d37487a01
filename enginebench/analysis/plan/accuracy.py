"""The prediction errors of the model: each measured load is predicted from a fit to the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from enginebench.analysis.plan.measured import MeasuredStage
from enginebench.analysis.plan.model import EngineModel, fit_model, futures
from enginebench.analysis.plan.not_planned import CannotPlan
from enginebench.analysis.plan.requests import FIGURES, Requests, figures
from enginebench.analysis.plan.simulation import ClosedLoop, serve
from enginebench.records.load import Rate

FUTURES = 7  # 2³ − 1: their speeds are evenly spaced about the usual one
MAX_ERROR = 0.25  # error of a held-out prediction above which the simulation gives no number


def fit_stages(stages: Sequence[MeasuredStage], declared_slots: int | None = None) -> EngineModel:
    """Fit a model to the steps of all stages. Raises `CannotPlan`."""
    return fit_model([steps for stage in stages for steps in stage.steps], declared_slots)


def replay(model: EngineModel, stage: MeasuredStage, count: int = FUTURES) -> list[Requests]:
    """Serve the requests of a measured stage again in `count` futures, with their lengths and, in an open loop, at
    their due times. Instants count from the beginning of the stage."""
    lengths, arrivals = stage.requests.lengths, isinstance(stage.load, Rate)
    due = stage.requests.sched - stage.begin if arrivals else stage.starts
    closed = None if arrivals else ClosedLoop(stage.end - stage.begin, stage.think)
    return [serve(future.drifted(model), due, lengths, future.rng, closed) for future in futures(count)]


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A load left out of the fit, as measured and as predicted: means over its stages, by figure."""

    stage: str
    measured: dict[str, float]
    predicted: dict[str, float]

    @property
    def errors(self) -> dict[str, float]:
        """Return relative errors: 0.03 for a prediction 3 % above the measurement; `nan` if either is missing."""
        pairs = ((figure, self.predicted[figure], self.measured[figure]) for figure in FIGURES)
        return {figure: predicted / measured - 1 if measured else math.nan for figure, predicted, measured in pairs}

    @property
    def largest_error(self) -> float:
        """Return the largest absolute error; 0 if no figure has an error."""
        return max((abs(error) for error in self.errors.values() if math.isfinite(error)), default=0.0)


def predict_unseen(model: EngineModel, label: str, stages: Sequence[MeasuredStage]) -> HeldOut:
    """Predict stages of one load left out of the fit, by the median future of each. With more stages, a disturbed stage
    counts less."""
    measured = [stage.figures for stage in stages]
    predicted = []
    for stage in stages:
        start, end = stage.start - stage.begin, stage.end - stage.begin
        served = [figures(requests, start, end) for requests in replay(model, stage)]
        predicted.append(
            {figure: float(np.median([prediction[figure] for prediction in served])) for figure in FIGURES}
        )
    means = [{figure: fmean(row[figure] for row in values) for figure in FIGURES} for values in (measured, predicted)]
    return HeldOut(label, *means)


def hold_out(stages: Sequence[MeasuredStage], whole: EngineModel) -> tuple[HeldOut, ...]:
    """Predict every load from all others; if there is only one load, each of its stages from the others.

    The assignment of slots comes from `whole`, the fit to all stages, because only saturation shows it.
    """
    several = len({stage.label for stage in stages}) > 1
    groups: dict[str, list[MeasuredStage]] = {}
    for stage in stages:
        groups.setdefault(stage.label if several else stage.name, []).append(stage)
    predictions: list[HeldOut] = []
    for label, group in sorted(groups.items(), key=lambda item: item[1][0].load.value):
        fitted = [stage for name, rest in groups.items() if name != label for stage in rest]
        try:
            model = replace(fit_stages(fitted, whole.slots), late_handover=whole.late_handover)
            predictions.append(predict_unseen(model, label, group))
        except CannotPlan:
            continue
    return tuple(predictions)
