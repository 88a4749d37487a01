"""Discrete-event simulations of one replica: they jump from admission to admission and to the end of an answer, not
from token to token, so that a request costs a few events whatever its length.

`ContinuousBatch` computes one batch step by step: at the beginning of a step it admits what waits, as far as slots are
free, and at its end every running request has a token more. `SeparateStreams` is an engine without a common batch,
whose requests slow each other down.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from heapq import heappop, heappush

import numpy as np

from enginebench.analysis.plan.model import EngineModel
from enginebench.analysis.plan.requests import Lengths
from enginebench.analysis.plan.steps import Generator

BLOCK = 256  # steps
NOISES = 4096  # steps whose noise is drawn ahead
MIN_NOISE = 0.2  # of a step's duration
Completion = tuple[float, int]  # instant, request


class Work:
    """The requests of one simulation, by number: their lengths, and when their first and last tokens came."""

    __slots__ = ("first", "last", "steps", "tokens")

    def __init__(self, tokens: list[float], steps: list[int]) -> None:
        """`tokens` are prompt tokens to be prefilled, `steps` those of the answer, at least one."""
        self.tokens, self.steps = tokens, steps
        self.first = [math.nan] * len(steps)
        self.last = [math.nan] * len(steps)

    def add(self, tokens: float, steps: int) -> None:
        self.tokens.append(tokens)
        self.steps.append(steps)
        self.first.append(math.nan)
        self.last.append(math.nan)

    @classmethod
    def of(cls, lengths: Lengths, tokens_per_step: float) -> Work:
        steps = np.maximum(np.rint(lengths.output / tokens_per_step), 1).astype(int)
        return cls(lengths.prefilled.tolist(), steps.tolist())


class SimulatedEngine(ABC):
    """Serve requests in the order in which they come. `work` has their lengths, and gets the times of their tokens."""

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
        """Queue a request that reaches the engine; `advance` has been called with this instant before."""
        if not self.in_flight:
            self.now = max(self.now, at)
        self._waiting.append((request, at))

    @abstractmethod
    def advance(self, until: float) -> list[Completion]:
        """Compute the steps that begin before `until`; return early when answers end, with what ended."""


class StepNoise:
    """By what shares of their costs the steps of one simulation take longer; zero on average.

    Blocks of measured steps are played back (moving-block bootstrap: Künsch 1989), because the speed of a machine
    changes in phases that last for many steps. Without measured ones the noise is normal and independent.
    """

    __slots__ = ("_at", "_sums")

    def __init__(self, model: EngineModel, rng: Generator) -> None:
        if len(model.noise):
            starts = rng.integers(len(model.noise), size=NOISES // BLOCK)
            noise = model.noise[(starts[:, None] + np.arange(BLOCK)).ravel() % len(model.noise)]
        else:
            noise = model.cost.spread * rng.standard_normal(NOISES)
        self._sums = [0.0, *np.cumsum(np.maximum(noise - noise.mean(), MIN_NOISE - 1)).tolist()]
        self._at = 0

    def over(self, steps: int) -> float:
        """Sum the next `steps` steps, and start again after the last one."""
        sums, begin, end = self._sums, self._at, self._at + steps
        laps = 0
        if end > NOISES:
            laps, end = divmod(end, NOISES)
        self._at = end
        total: float = laps * sums[-1] + sums[end] - sums[begin]
        return total


class ContinuousBatch(SimulatedEngine):
    """Continuous batching in one loop of steps."""

    __slots__ = ("_freed", "_noise", "_number", "_running")

    def __init__(self, model: EngineModel, work: Work, rng: Generator) -> None:
        super().__init__(model, work)
        self._noise = StepNoise(model, rng)
        self._freed = 0  # slots that the next step cannot fill yet
        self._number = 0  # of the last decode step
        self._running: list[tuple[int, int]] = []  # a heap of the step that ends an answer, and its request

    @property
    def in_flight(self) -> int:
        return len(self._running) + len(self._waiting)

    def advance(self, until: float) -> list[Completion]:
        running, waiting, cost, slots = self._running, self._waiting, self._cost, self._slots
        while self.now < until:
            if waiting and len(running) + self._freed < slots:
                ended = self._prefill()
            elif running:
                step = cost.seconds(len(running))
                steps = 1 if self._freed and waiting else running[0][0] - self._number
                if step * (steps - 1) > until - self.now:
                    steps = math.ceil((until - self.now) / step)
                self._freed = 0
                self._pass(step, steps)
                self._number += steps
                ended = self._ended()
            elif waiting:
                self._freed = 0
                continue
            else:
                return []
            if ended:
                return ended
        return []

    def _prefill(self) -> list[Completion]:
        """Compute one step that admits what waits."""
        model, work, running, waiting = self._model, self._work, self._running, self._waiting
        room = min(len(waiting), self._slots - len(running) - self._freed)
        self._freed = 0
        admitted = []
        tokens = 0.0
        while room > 0:
            request, _ = waiting.popleft()
            admitted.append(request)
            tokens += work.tokens[request]
            room -= 1
        count = len(admitted) if model.pauses else len(running) + len(admitted)
        step = self._cost.seconds(count, tokens, len(admitted))
        self._pass(step, 1)
        if not model.pauses:
            self._number += 1
        for request in admitted:
            work.first[request] = self.now
            heappush(running, (self._number + work.steps[request] - 1, request))
        return self._ended()

    def _pass(self, step: float, steps: int) -> None:
        self.now += step * (steps + self._noise.over(steps))

    def _ended(self) -> list[Completion]:
        running, now = self._running, self.now
        ended = []
        while running and running[0][0] <= self._number:
            _, request = heappop(running)
            self._work.last[request] = now
            ended.append((now, request))
        if self._model.late_handover and self._waiting:
            self._freed += len(ended)
        return ended


class SeparateStreams(SimulatedEngine):
    """Requests that each have steps of their own, which take longer the more of them run (processor sharing).

    Progress is counted in steps that a request could have done since the start, the same for all (virtual time).
    """

    __slots__ = ("_ends", "_firsts", "_progress")

    def __init__(self, model: EngineModel, work: Work) -> None:
        super().__init__(model, work)
        self._progress = 0.0
        self._firsts: list[tuple[float, int]] = []  # a heap of when a first token is due
        self._ends: list[tuple[float, int]] = []  # a heap of the progress at which an answer ends

    @property
    def in_flight(self) -> int:
        return len(self._firsts) + len(self._ends) + len(self._waiting)

    def submit(self, request: int, at: float) -> None:
        self._waiting.append((request, at))
        self._admit(max(self.now, at))

    def advance(self, until: float) -> list[Completion]:
        while self.now < until and (self._firsts or self._ends):
            step = self._cost.seconds(len(self._firsts) + len(self._ends))
            end = self.now + (self._ends[0][0] - self._progress) * step if self._ends else math.inf
            first = self._firsts[0][0] if self._firsts else math.inf
            event = min(end, first, until)
            self._progress += (event - self.now) / step if step > 0 else 0.0
            self.now = event
            if event == until and event < min(end, first):
                return []
            request, over = self._end() if end <= first else self._first()
            if over:
                self._admit(event)
                return [(event, request)]
        return []

    def _end(self) -> tuple[int, bool]:
        progress, request = heappop(self._ends)
        self._progress = max(self._progress, progress)
        self._work.last[request] = self.now
        return request, True

    def _first(self) -> tuple[int, bool]:
        """Whether the answer is over with its first token."""
        _, request = heappop(self._firsts)
        self._work.first[request] = self.now
        if self._work.steps[request] > 1:
            heappush(self._ends, (self._progress + self._work.steps[request] - 1, request))
            return request, False
        self._work.last[request] = self.now
        return request, True

    def _admit(self, now: float) -> None:
        while self._waiting and len(self._firsts) + len(self._ends) < self._slots:
            request, at = self._waiting.popleft()
            begins = max(now, at)
            running = len(self._firsts) + len(self._ends) + 1
            seconds = self._cost.seconds(running, self._work.tokens[request], 1)
            heappush(self._firsts, (begins + seconds, request))


def engine_of(model: EngineModel, work: Work, rng: Generator) -> SimulatedEngine:
    return ContinuousBatch(model, work, rng) if model.synchronised else SeparateStreams(model, work)
