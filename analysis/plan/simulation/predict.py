"""What the simulation says of a load: the figures of a stage, over many seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from analysis.plan.engine.model import EngineModel
from analysis.plan.engine.steps import Floats, Generator
from analysis.plan.evidence.measured import MeasuredStage
from analysis.plan.simulation.arrivals import arrival_times
from analysis.plan.simulation.outcome import Band, Requests, bands, figures, requests_of
from analysis.plan.simulation.replica import Served, serve_arrivals, serve_users
from analysis.plan.simulation.trials import trials
from analysis.plan.simulation.work import Lengths
from records.load import Load, Rate, Users

SEEDS = 20


@dataclass(frozen=True, slots=True)
class Demand:
    """A load on one replica, and what is asked. Seconds.

    `starts` is the time over which users start, `think` holds pauses to draw from.
    """

    load: Load
    lengths: Lengths
    warm_up: float = 20.0
    window: float = 60.0
    starts: float = 1.0
    think: Floats = field(default_factory=lambda: np.zeros(0))

    @property
    def end(self) -> float:
        return self.warm_up + self.window


def simulate(model: EngineModel, demand: Demand, rng: Generator) -> Served:
    """New users or arrivals with lengths that are drawn anew."""
    if isinstance(demand.load, Users):
        count = demand.load.count
        starts = rng.uniform(0, demand.starts, count)
        lengths = demand.lengths.drawn(max(4096, 4 * count), rng)
        return serve_users(model, starts, lengths, demand.end, demand.think, rng)
    arrivals = arrival_times(demand.load, demand.end, rng)
    return serve_arrivals(model, arrivals, demand.lengths.drawn(len(arrivals), rng), rng)


def replay(model: EngineModel, stage: MeasuredStage, rng: Generator) -> Served:
    """The requests of a measured stage again, with their lengths; arrivals of an open loop when they were due."""
    requests = stage.requests
    if isinstance(stage.load, Rate):
        return serve_arrivals(model, requests.sched - stage.begin, requests.lengths, rng)
    return serve_users(model, stage.starts, requests.lengths, stage.end - stage.begin, stage.think, rng)


def over_seeds(
    model: EngineModel, run: Callable[[EngineModel, Generator], Served], seeds: int, seed: int = 0
) -> list[Requests]:
    """Each seed is another day: other noise, other draws, and a machine as fast as it may have been."""
    return [requests_of(run(trial.model(model), trial.rng)) for trial in trials(seeds, seed)]


def replayed(model: EngineModel, stage: MeasuredStage, seeds: int) -> list[Requests]:
    """The simulated requests of a measured stage, over seeds. Instants count from the stage's begin."""
    return over_seeds(model, lambda drawn, rng: replay(drawn, stage, rng), seeds)


def predicted_stage(model: EngineModel, stage: MeasuredStage, seeds: int) -> dict[str, Band]:
    served = replayed(model, stage, seeds)
    return bands([figures(one, stage.start - stage.begin, stage.end - stage.begin) for one in served])


def predicted(model: EngineModel, demand: Demand, seeds: int = SEEDS, seed: int = 0) -> dict[str, Band]:
    served = over_seeds(model, lambda drawn, rng: simulate(drawn, demand, rng), seeds, seed)
    return bands([figures(one, demand.warm_up, demand.end) for one in served])


def pooled(stages: Sequence[MeasuredStage]) -> Lengths:
    """The lengths of all stages together."""
    parts = [stage.lengths for stage in stages]
    return Lengths(*(np.concatenate([getattr(p, name) for p in parts]) for name in ("prefilled", "prompt", "output")))
