"""How far predictions are off: each load is predicted from a model that was fitted to the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from analysis.plan.errors import CannotPlan
from analysis.plan.measured import MeasuredStage
from analysis.plan.model import FittedModel, fit_model
from analysis.plan.outcome import FIGURES, Band
from analysis.plan.predict import predicted_stage

SEEDS = 5


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


def fit_stages(stages: Sequence[MeasuredStage], declared_slots: int | None = None) -> FittedModel:
    """Raises `CannotPlan`."""
    return fit_model([(stage.name, steps) for stage in stages for steps in stage.steps], declared_slots)


def predict_unseen(fitted: FittedModel, label: str, stages: Sequence[MeasuredStage]) -> HeldOut:
    """Stages of one load that had no part in the fit. The more of them, the less a disturbed one counts."""
    model, measured = fitted.model, [stage.figures for stage in stages]
    predicted = [predicted_stage(model, stage, SEEDS) for stage in stages]
    return HeldOut(
        label,
        {figure: fmean(one[figure] for one in measured) for figure in FIGURES},
        {figure: _mean([one[figure] for one in predicted]) for figure in FIGURES},
        model.slots is not None,
    )


def _mean(bands: Sequence[Band]) -> Band:
    return Band(fmean(one.median for one in bands), fmean(one.low for one in bands), fmean(one.high for one in bands))


def hold_out(stages: Sequence[MeasuredStage], declared_slots: int | None = None) -> tuple[HeldOut, ...]:
    """Every load predicted from all the others; where there is one load, each of its stages from the others."""
    several = len({stage.label for stage in stages}) > 1
    groups: dict[str, list[MeasuredStage]] = {}
    for stage in stages:
        groups.setdefault(stage.label if several else stage.name, []).append(stage)
    found: list[HeldOut] = []
    for label, group in sorted(groups.items(), key=lambda item: item[1][0].load.value):
        others = [stage for name, rest in groups.items() if name != label for stage in rest]
        try:
            found.append(predict_unseen(fit_stages(others, declared_slots), label, group))
        except CannotPlan:
            continue
    return tuple(found)
