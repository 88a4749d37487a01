"""A replica that computes only requests of the same length together, one group a step.

Such engines pad nothing: requests decoded together have the same number of tokens so far. Which group is next is
the rule of mistral.rs's default scheduler: the one with the largest sum, over its requests, of the steps that each has
waited and the base-2 logarithm of its length. New prompts form groups of their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from analysis.plan.model import EngineModel
from analysis.plan.simulated_engine import SimulatedEngine, StepNoise
from analysis.plan.steps import Generator
from analysis.plan.work import Completion, Work


@dataclass(slots=True)
class _Group:
    """Requests of one length. `served` is the sum of the steps in which each of them was computed last."""

    requests: list[int]
    served: int

    def priority(self, step: int, length: int) -> float:
        count = len(self.requests)
        return count * (step + math.log2(max(length, 1))) - self.served


class GroupedReplica(SimulatedEngine):
    """Every step is computed."""

    __slots__ = ("_groups", "_left", "_noise", "_number")

    def __init__(self, model: EngineModel, work: Work, rng: Generator) -> None:
        super().__init__(model, work)
        self._noise = StepNoise(model, rng)
        self._number = 0
        self._groups: dict[tuple[int, bool], _Group] = {}  # by length, and whether they are prompts
        self._left: dict[int, int] = {}  # steps of each admitted request

    @property
    def in_flight(self) -> int:
        return len(self._left) + len(self._waiting)

    def advance(self, until: float) -> list[Completion]:
        while self.now < until and (self._left or self._waiting):
            self._admit()
            if ended := self._step():
                return ended
        return []

    def _admit(self) -> None:
        while self._waiting and len(self._left) < self._slots:
            request, _ = self._waiting.popleft()
            self._left[request] = self._work.steps[request]
            self._join((round(self._work.tokens[request]), True), request, self._number + 1)

    def _join(self, key: tuple[int, bool], request: int, served: int) -> None:
        group = self._groups.setdefault(key, _Group([], 0))
        group.requests.append(request)
        group.served += served

    def _step(self) -> list[Completion]:
        self._number += 1
        key = max(self._groups, key=lambda of: self._groups[of].priority(self._number, of[0]))
        (length, prompts), group = key, self._groups.pop(key)
        count = len(group.requests)
        step = self._cost.seconds(count, length * count, count) if prompts else self._cost.seconds(count)
        self.now += step * (1 + self._noise.over(1))
        ended = []
        for request in group.requests:
            if prompts:
                self._work.first[request] = self.now
            self._left[request] -= 1
            if self._left[request]:
                self._join((length + 1, False), request, self._number)
            else:
                del self._left[request]
                self._work.last[request] = self.now
                ended.append((self.now, request))
        return ended
