"""What every answer of `enginebench plan` rests on: the stages of one engine's runs, and the model fitted to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.data.load import RunData
from analysis.plan.errors import CannotPlan
from analysis.plan.hold_out import fit_stages
from analysis.plan.measured import MeasuredStage, measured_stages
from analysis.plan.model import EngineModel, FittedModel
from analysis.plan.predict import pooled
from analysis.plan.replicas import Measured
from analysis.plan.steps import Floats
from analysis.plan.work import Lengths
from records.load import Users


@dataclass(frozen=True, slots=True)
class Basis:
    stages: tuple[MeasuredStage, ...]
    declared_slots: int | None  # what the engine says of itself
    fitted: FittedModel
    measured: Measured

    @property
    def model(self) -> EngineModel:
        return self.fitted.model

    @property
    def lengths(self) -> Lengths:
        return pooled(self.stages)

    @property
    def think(self) -> Floats:
        """Pauses of users between an answer and the next request, in seconds."""
        parts = [stage.think for stage in self.stages if len(stage.think)]
        return np.concatenate(parts) if parts else np.zeros(0)


def read_basis(runs: Sequence[RunData], allow_drift: bool = False) -> Basis:
    """Raises `CannotPlan`, also where the machine drifted and that is not allowed."""
    stages = measured_stages(runs)
    declared = declared_slots(runs)
    fitted = fit_stages(stages, declared)
    worst = fitted.fit.worst
    if fitted.fit.drifted and worst is not None and not allow_drift:
        raise CannotPlan(
            f"the machine drifted while it was measured: steps took {worst.ratio:.2f} times the fitted cost for 10 s "
            f"at {worst.stage}. Measure again on a quiet machine, with the loads interleaved, or accept it with "
            "--allow-drift."
        )
    return Basis(tuple(stages), declared, fitted, largest_loads(stages))


def largest_loads(stages: Sequence[MeasuredStage]) -> Measured:
    """A rate of arrivals counts as its answers a second; users of an open loop are the requests in flight."""
    users = max((stage.load.value for stage in stages if isinstance(stage.load, Users)), default=0.0)
    running = max((steps.occupied.max(initial=0.0) for stage in stages for steps in stage.steps), default=0.0)
    return Measured(users or float(running), max(stage.figures["rate"] for stage in stages))


def declared_slots(runs: Sequence[RunData]) -> int | None:
    """What the engine says of itself, where all runs agree."""
    told = {(run.meta.engine or {}).get("max_concurrency") for run in runs}
    only = told.pop() if len(told) == 1 else None
    return only if isinstance(only, int) and only > 0 else None
