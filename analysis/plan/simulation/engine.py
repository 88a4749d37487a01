"""What all simulated engines have: requests that wait, a clock, and where its time went."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from itertools import cycle

from analysis.plan.engine.model import EngineModel
from analysis.plan.engine.steps import Generator
from analysis.plan.simulation.work import NOISES, Completion, Spent, Work


class SimulatedEngine(ABC):
    """Takes requests in the order in which they come. `work` has their lengths, and gets the times of their tokens."""

    __slots__ = ("_cost", "_model", "_slots", "_waiting", "_work", "now", "spent")

    def __init__(self, model: EngineModel, work: Work) -> None:
        self._model, self._cost, self._work = model, model.cost, work
        self._slots = model.slots if model.slots is not None else math.inf
        self._waiting: deque[tuple[int, float]] = deque()
        self.now = 0.0
        self.spent = Spent()

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


def noise_of(model: EngineModel, rng: Generator) -> Callable[[], float]:
    """Draws the relative noise of one step after another."""
    draw: Callable[[], float] = cycle((model.cost.spread * rng.standard_normal(NOISES)).tolist()).__next__
    return draw
