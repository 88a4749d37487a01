"""Simulate an engine from its runs: the fitted model, its errors, and the replicas that a peak needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from enginebench.analysis.data.run_data import RunData
from enginebench.analysis.plan.accuracy import MAX_ERROR, HeldOut, fit_stages, hold_out
from enginebench.analysis.plan.fleet import Fleet, Peak, SimulatedReplicas, fewest_replicas
from enginebench.analysis.plan.measured import declared_slots, measured_stages, supported_loads
from enginebench.analysis.plan.model import EngineModel
from enginebench.analysis.plan.not_planned import CannotPlan, NotPlanned
from enginebench.analysis.plan.requests import pooled, simulated
from enginebench.records.load import Load
from enginebench.records.slo import Objective


@dataclass(frozen=True, slots=True)
class Simulation:
    """The model fitted to the runs of one engine, its errors on held-out loads, and the replicas or why they are
    `missing`."""

    model: EngineModel | None
    held_out: tuple[HeldOut, ...]
    replicas: SimulatedReplicas | None
    missing: NotPlanned | None


def simulate(runs: Sequence[RunData], load: Load, seconds: float, objectives: Sequence[Objective]) -> Simulation:
    """Simulate a peak of `load` for `seconds`, with the pooled request lengths and user pauses of all stages."""
    model: EngineModel | None = None
    held_out: tuple[HeldOut, ...] = ()
    try:
        limits = simulated(objectives)
        stages = measured_stages(runs)
        model = fit_stages(stages, declared_slots(runs))
        held_out = hold_out(stages, model)
        if len({stage.label for stage in stages}) < 2:
            raise CannotPlan(NotPlanned.ONE_LOAD)
        if not held_out:
            raise CannotPlan(NotPlanned.FEW_STEPS)
        if max(held.largest_error for held in held_out) > MAX_ERROR:
            raise CannotPlan(NotPlanned.POOR_FIT)
        pauses = [stage.think for stage in stages if len(stage.think)]
        think = np.concatenate(pauses) if pauses else np.zeros(0)
        peak = Peak(load, pooled([stage.lengths for stage in stages]), seconds, think=think)
        supported = supported_loads(stages, model.slots is not None, objectives)
        replicas = fewest_replicas(Fleet(model, peak, limits), supported)
    except CannotPlan as error:
        return Simulation(model, held_out, None, error.reason)
    return Simulation(model, held_out, replicas, None)
