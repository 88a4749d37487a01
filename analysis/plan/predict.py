"""What the simulation says of a measured stage: its figures, over many seeds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analysis.plan.measured import MeasuredStage
from analysis.plan.model import EngineModel
from analysis.plan.outcome import Band, Requests, bands, figures, requests_of
from analysis.plan.replica import Served, serve_arrivals, serve_users
from analysis.plan.steps import Generator
from analysis.plan.trials import trials
from analysis.plan.work import Lengths
from records.load import Rate


def replay(model: EngineModel, stage: MeasuredStage, rng: Generator) -> Served:
    """The requests of a measured stage again, with their lengths; arrivals of an open loop when they were due."""
    requests = stage.requests
    if isinstance(stage.load, Rate):
        return serve_arrivals(model, requests.sched - stage.begin, requests.lengths, rng)
    return serve_users(model, stage.starts, requests.lengths, stage.end - stage.begin, stage.think, rng)


def replayed(model: EngineModel, stage: MeasuredStage, seeds: int) -> list[Requests]:
    """The simulated requests of a measured stage, over seeds. Instants count from the stage's begin.

    Each seed is another day: other noise, other draws, and a machine as fast as it may have been.
    """
    return [requests_of(replay(trial.model(model), stage, trial.rng)) for trial in trials(seeds)]


def predicted_stage(model: EngineModel, stage: MeasuredStage, seeds: int) -> dict[str, Band]:
    served = replayed(model, stage, seeds)
    return bands([figures(one, stage.start - stage.begin, stage.end - stage.begin) for one in served])


def pooled(stages: Sequence[MeasuredStage]) -> Lengths:
    """The lengths of all stages together."""
    parts = [stage.lengths for stage in stages]
    return Lengths(*(np.concatenate([getattr(p, name) for p in parts]) for name in ("prefilled", "prompt", "output")))
