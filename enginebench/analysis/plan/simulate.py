"""From the records of one engine to its simulation: the model, its errors, and the replicas that a peak needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from enginebench.analysis.data.load import RunData
from enginebench.analysis.plan.accuracy import MAX_ERROR, HeldOut, LargestError, fit_stages, hold_out, largest_error
from enginebench.analysis.plan.fleet import Fleet, Peak
from enginebench.analysis.plan.measured import (
    MeasuredStage,
    SupportedLoads,
    declared_slots,
    measured_stages,
    supported_loads,
)
from enginebench.analysis.plan.model import FittedModel
from enginebench.analysis.plan.not_planned import CannotPlan, NotPlanned
from enginebench.analysis.plan.replicas import SimulatedReplicas, fewest_replicas
from enginebench.analysis.plan.requests import pooled, simulated
from enginebench.records.load import Load
from enginebench.records.slo import Objective


@dataclass(frozen=True, slots=True)
class Basis:
    """The stages of one engine's runs, the model fitted to them, and its errors on loads it had not seen."""

    stages: tuple[MeasuredStage, ...]
    fitted: FittedModel
    held_out: tuple[HeldOut, ...]

    @property
    def largest_error(self) -> LargestError | None:
        return largest_error(self.held_out)

    @property
    def refused(self) -> NotPlanned | None:
        """Why the simulation gives no number: no load could be predicted, or one by more than 25 % off."""
        if self.largest_error is None:
            return NotPlanned.ONE_LOAD
        return NotPlanned.ERROR if self.largest_error.error > MAX_ERROR else None

    def supported(self, objectives: Sequence[Objective] = ()) -> SupportedLoads:
        model = self.fitted.model
        return supported_loads(self.stages, model.slots is not None or not model.synchronised, objectives)

    def fleet(self, load: Load, seconds: float, objectives: Sequence[Objective]) -> Fleet:
        """The peak has the lengths and the users' pauses of all stages together. Raises `CannotPlan`."""
        pauses = [stage.think for stage in self.stages if len(stage.think)]
        think = np.concatenate(pauses) if pauses else np.zeros(0)
        peak = Peak(load, pooled([stage.lengths for stage in self.stages]), seconds, think=think)
        return Fleet(self.fitted, peak, simulated(objectives))


@dataclass(frozen=True, slots=True)
class Simulation:
    """`refused` says why its number of replicas is not used, `None` if it is. `fleet` holds what was simulated;
    `replicas` is `None` if no number of them is enough, or nothing could be simulated."""

    basis: Basis | None
    supported: SupportedLoads | None
    fleet: Fleet | None
    replicas: SimulatedReplicas | None
    refused: NotPlanned | None

    @property
    def count(self) -> int | None:
        """Replicas without spares, if the prediction errors allow it."""
        return None if self.refused is not None or self.replicas is None else self.replicas.count


def read_basis(runs: Sequence[RunData]) -> Basis:
    """Raises `CannotPlan`."""
    stages = measured_stages(runs)
    fitted = fit_stages(stages, declared_slots(runs))
    return Basis(tuple(stages), fitted, hold_out(stages, fitted.model.slots))


def simulate(runs: Sequence[RunData], load: Load, seconds: float, objectives: Sequence[Objective]) -> Simulation:
    """Simulate a peak of `load` for `seconds`, from the runs of one engine."""
    basis, supported, fleet = None, None, None
    try:
        basis = read_basis(runs)
        supported, fleet = basis.supported(objectives), basis.fleet(load, seconds, objectives)
        return Simulation(basis, supported, fleet, fewest_replicas(fleet, supported), basis.refused)
    except CannotPlan as error:
        return Simulation(basis, supported, fleet, None, error.reason)
