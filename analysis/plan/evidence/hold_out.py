"""How far predictions are off: each stage is predicted from a model that was fitted to the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from analysis.plan.engine.model import EngineModel, FittedModel, fit_model
from analysis.plan.errors import CannotPlan
from analysis.plan.evidence.measured import MeasuredStage
from analysis.plan.simulation.outcome import FIGURES, Band
from analysis.plan.simulation.predict import predicted_stage

SEEDS = 5


@dataclass(frozen=True, slots=True)
class HeldOut:
    """One stage that the model had not seen: what was measured and what was predicted, by figure."""

    stage: str
    measured: dict[str, float]
    predicted: dict[str, Band]
    slots_known: bool  # from the other stages, or from the engine

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


def fit_stages(stages: Sequence[MeasuredStage], declared_slots: int | None = None) -> FittedModel:
    """Raises `CannotPlan`."""
    return fit_model([(stage.name, steps) for stage in stages for steps in stage.steps], declared_slots)


def predict_unseen(fitted: FittedModel, stages: Sequence[MeasuredStage]) -> tuple[HeldOut, ...]:
    """Stages that had no part in the fit."""
    return tuple(_held_out(fitted.model, stage) for stage in stages)


def _held_out(model: EngineModel, stage: MeasuredStage) -> HeldOut:
    return HeldOut(stage.name, stage.figures, predicted_stage(model, stage, SEEDS), model.slots is not None)


def hold_out(stages: Sequence[MeasuredStage], declared_slots: int | None = None) -> tuple[HeldOut, ...]:
    """Every stage predicted from all the others; none with fewer than two stages."""
    found: list[HeldOut] = []
    for index, stage in enumerate(stages):
        others = [*stages[:index], *stages[index + 1 :]]
        try:
            found += predict_unseen(fit_stages(others, declared_slots), [stage])
        except CannotPlan:
            continue
    return tuple(found)
