"""What all simulated engines have: requests that wait, and a clock."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque

import numpy as np

from analysis.plan.model import EngineModel
from analysis.plan.steps import Generator
from analysis.plan.work import LEAST_NOISE, NOISES, Completion, Work

BLOCK = 256  # steps


class SimulatedEngine(ABC):
    """Takes requests in the order in which they come. `work` has their lengths, and gets the times of their tokens."""

    __slots__ = ("_cost", "_model", "_slots", "_waiting", "_work", "now")

    def __init__(self, model: EngineModel, work: Work) -> None:
        self._model, self._cost, self._work = model, model.cost, work
        self._slots = model.slots if model.slots is not None else math.inf
        self._waiting: deque[tuple[int, float]] = deque()
        self.now = 0.0

    @property
    @abstractmethod
    def in_flight(self) -> int: ...

    def submit(self, request: int, at: float) -> None:
        """A request reaches the engine; `advance` has been called with this instant before."""
        if not self.in_flight:
            self.now = max(self.now, at)
        self._waiting.append((request, at))

    @abstractmethod
    def advance(self, until: float) -> list[Completion]:
        """Compute the steps that begin before `until`; returns early when answers end, with what ended."""


class StepNoise:
    """By what shares of their costs the steps of one simulation take longer.

    Blocks of measured steps are played back (moving-block bootstrap: Künsch 1989), because the speed of a machine
    changes in phases that last for many steps. Without measured ones the noise is normal and independent. Its mean is
    zero.
    """

    __slots__ = ("_at", "_sums")

    def __init__(self, model: EngineModel, rng: Generator) -> None:
        if len(model.noise):
            starts = rng.integers(len(model.noise), size=NOISES // BLOCK)
            noise = model.noise[(starts[:, None] + np.arange(BLOCK)).ravel() % len(model.noise)]
        else:
            noise = model.cost.spread * rng.standard_normal(NOISES)
        self._sums = [0.0, *np.cumsum(np.maximum(noise - noise.mean(), LEAST_NOISE - 1)).tolist()]
        self._at = 0

    def over(self, steps: int) -> float:
        """The sum over the next `steps` steps; from the first one on again after the last."""
        sums, begin, end = self._sums, self._at, self._at + steps
        laps = 0
        if end > NOISES:
            laps, end = divmod(end, NOISES)
        self._at = end
        total: float = laps * sums[-1] + sums[end] - sums[begin]
        return total
