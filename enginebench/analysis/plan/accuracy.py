"""How far the model is off what was measured: each load predicted from a fit to the others, and whether the model meets
objectives at loads that missed them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from enginebench.analysis.plan.measured import MeasuredStage
from enginebench.analysis.plan.model import EngineModel, FittedModel, fit_model, futures
from enginebench.analysis.plan.requests import FIGURES, Band, Requests, band, bands, figures, simulated, within
from enginebench.analysis.plan.settings import CannotPlan
from enginebench.analysis.plan.simulation import serve_arrivals, serve_users
from enginebench.records.formatting import format_ratio, format_share
from enginebench.records.load import Rate
from enginebench.records.slo import Objective

FUTURES = 7  # 2³ − 1: their speeds are evenly spaced about the usual one
INACCURATE = 0.25  # error of a held-out prediction above which a plan is not reliable
ERRORS = {
    "ttft_p50": "TTFT p50",
    "ttft_p95": "TTFT p95",
    "tpot_p50": "TPOT p50",
    "e2e_mean": "E2E mean",
    "throughput": "tokens/s",
}
"""The figures whose errors are shown, and what they are called."""
APART = 1.5  # times as many misses on one side as on the other; less is the noise of a stage


def fit_stages(stages: Sequence[MeasuredStage], declared_slots: int | None = None) -> FittedModel:
    """Raises `CannotPlan`."""
    return fit_model([(stage.name, steps) for stage in stages for steps in stage.steps], declared_slots)


def replayed(model: EngineModel, stage: MeasuredStage, count: int) -> list[Requests]:
    """The requests of a measured stage served again in so many futures, with their lengths, and in an open loop when
    they were due. Instants count from the stage's begin."""
    requests, served = stage.requests, []
    for future in futures(count):
        engine, rng = future.usual(model), future.rng
        if isinstance(stage.load, Rate):
            served.append(serve_arrivals(engine, requests.sched - stage.begin, requests.lengths, rng))
        else:
            seconds = stage.end - stage.begin
            served.append(serve_users(engine, stage.starts, requests.lengths, seconds, stage.think, rng))
    return served


def predicted_stage(model: EngineModel, stage: MeasuredStage, count: int) -> dict[str, Band]:
    start, end = stage.start - stage.begin, stage.end - stage.begin
    return bands([figures(requests, start, end) for requests in replayed(model, stage, count)])


@dataclass(frozen=True, slots=True)
class HeldOut:
    """One load that the model had not seen: what was measured and predicted, by figure, as means over its stages."""

    stage: str
    measured: dict[str, float]
    predicted: dict[str, Band]
    slots_known: bool  # from the other loads, or from the engine

    @property
    def title(self) -> str:
        """Without a saturated stage the slots are not known, and what waits for one cannot be predicted."""
        return self.stage if self.slots_known else f"{self.stage}, slots unknown"

    def error(self, figure: str) -> float:
        """Relative: 0.03 where the prediction is 3 % above what was measured; `nan` where nothing was."""
        measured = self.measured[figure]
        return self.predicted[figure].median / measured - 1 if measured else math.nan

    @property
    def errors(self) -> dict[str, float]:
        return {figure: self.error(figure) for figure in FIGURES}


def predict_unseen(fitted: FittedModel, label: str, stages: Sequence[MeasuredStage]) -> HeldOut:
    """Stages of one load that had no part in the fit. The more of them, the less a disturbed one counts."""
    model, measured = fitted.model, [stage.figures for stage in stages]
    predicted = [predicted_stage(model, stage, FUTURES) for stage in stages]
    return HeldOut(
        label,
        {figure: fmean(stage[figure] for stage in measured) for figure in FIGURES},
        {figure: _mean([stage[figure] for stage in predicted]) for figure in FIGURES},
        model.slots is not None,
    )


def _mean(of: Sequence[Band]) -> Band:
    return Band(fmean(b.median for b in of), fmean(b.low for b in of), fmean(b.high for b in of))


def hold_out(stages: Sequence[MeasuredStage], declared_slots: int | None = None) -> tuple[HeldOut, ...]:
    """Every load predicted from all the others; where there is one load, each of its stages from the others."""
    several = len({stage.label for stage in stages}) > 1
    groups: dict[str, list[MeasuredStage]] = {}
    for stage in stages:
        groups.setdefault(stage.label if several else stage.name, []).append(stage)
    predictions: list[HeldOut] = []
    for label, group in sorted(groups.items(), key=lambda item: item[1][0].load.value):
        others = [stage for name, rest in groups.items() if name != label for stage in rest]
        try:
            predictions.append(predict_unseen(fit_stages(others, declared_slots), label, group))
        except CannotPlan:
            continue
    return tuple(predictions)


@dataclass(frozen=True, slots=True)
class LargestError:
    """Of held-out predictions: `error` is relative, 0.03 for 3 %; `figure` is what it is called, `load` where it is."""

    error: float
    figure: str
    load: str

    @property
    def size(self) -> str:
        """`12 %`; above 100 % as a factor, `5.3×`."""
        return format_share(self.error) if self.error <= 1 else format_ratio(1 + self.error, None, None)

    @property
    def sentence(self) -> str:
        return f"held-out predictions were off by up to {self.size} ({self.figure} at {self.load})"


def largest_error(held_out: Sequence[HeldOut], slots_known: bool) -> LargestError | None:
    """`None` where nothing was predicted. Without its saturated stage, a fit may not know the slots that the model
    does (`slots_known`): such predictions do not tell how far it is off."""
    alike = [held for held in held_out if held.slots_known or not slots_known]
    errors = [LargestError(abs(held.error(of)), name, held.stage) for held in alike for of, name in ERRORS.items()]
    return max((of for of in errors if math.isfinite(of.error)), key=lambda of: of.error, default=None)


@dataclass(frozen=True, slots=True)
class Contradiction:
    """One objective at one measured load: the share of requests that met it, and what the model says of the same ones.

    A model that meets an objective where the replica missed it, or the other way round, has another law than the
    engine, and the number of replicas that it gives is wrong, whatever the band around it.
    """

    load: str
    objective: Objective
    measured: float
    predicted: Band

    @property
    def sentence(self) -> str:
        return (
            f"at {self.load} the model has {format_share(self.predicted.median)} within "
            f"{self.objective.text}, and {format_share(self.measured)} were measured"
        )


def contradiction(
    model: EngineModel, stages: Sequence[MeasuredStage], objectives: Sequence[Objective]
) -> Contradiction | None:
    """The widest one; `None` where the model and the measurements agree on which loads meet the objectives."""
    loads: dict[str, list[MeasuredStage]] = {}
    for stage in stages:
        loads.setdefault(stage.label, []).append(stage)
    judged = []
    for load, same in loads.items():
        measured = [stage.requests.between(stage.start, stage.end) for stage in same]
        predicted = [_windows(model, stage) for stage in same]
        for objective in simulated(objectives):
            by_future = zip(*([_share(window, objective) for window in stage] for stage in predicted), strict=True)
            share = fmean(_share(window, objective) for window in measured)
            judged.append(Contradiction(load, objective, share, band([fmean(shares) for shares in by_future])))
    return max(filter(_opposed, judged), key=lambda at: abs(at.predicted.median - at.measured), default=None)


def _windows(model: EngineModel, stage: MeasuredStage) -> list[Requests]:
    start, end = stage.start - stage.begin, stage.end - stage.begin
    return [requests.between(start, end) for requests in replayed(model, stage, FUTURES)]


def _share(requests: Requests, objective: Objective) -> float:
    met = within(requests, objective)
    return float(met.mean()) if len(met) else 1.0


def _opposed(at: Contradiction) -> bool:
    """Beyond what futures and a few requests explain."""
    q, predicted = at.objective.q, at.predicted.median
    fewer, more = sorted((1 - at.measured, 1 - predicted))
    return (at.measured >= q) != (predicted >= q) and not at.predicted.holds(at.measured) and more > APART * fewer
