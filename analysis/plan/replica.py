"""A discrete-event simulation of one replica: it jumps from admission to admission and to the end of an answer, not
from token to token, so that a request costs a few events whatever its length.

`Replica` computes one batch step by step: at the beginning of a step it admits what waits, as far as slots are free,
and at its end every running request has a token more. `SeparateStreams` is an engine without a common batch, whose
requests slow each other down; grouped.py has one whose batch holds requests of equal length.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from analysis.plan.grouped import GroupedReplica
from analysis.plan.model import EngineModel
from analysis.plan.simulated_engine import SimulatedEngine, StepNoise
from analysis.plan.steps import Floats, Generator
from analysis.plan.work import NOISES, Completion, Lengths, Work


class Replica(SimulatedEngine):
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
        """One step that admits what waits."""
        model, work, running, waiting = self._model, self._work, self._running, self._waiting
        room = min(len(waiting), self._slots - len(running) - self._freed, model.admits or math.inf)
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
        """So many steps of the same cost."""
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


def replica(model: EngineModel, work: Work, rng: Generator) -> SimulatedEngine:
    if model.grouped:
        return GroupedReplica(model, work, rng)
    return Replica(model, work, rng) if model.synchronised else SeparateStreams(model, work)


@dataclass(frozen=True, slots=True)
class Served:
    """Simulated requests in the order in which they were due; seconds."""

    sched: Floats
    first: Floats
    last: Floats
    lengths: Lengths


def serve_arrivals(model: EngineModel, arrivals: Floats, lengths: Lengths, rng: Generator) -> Served:
    """An open loop: request k arrives at `arrivals[k]` with the k-th lengths."""
    work = lengths.work(model.tokens_per_step)
    engine = replica(model, work, rng)
    advance, submit = engine.advance, engine.submit
    for request, at in enumerate((arrivals + model.delivery).tolist()):
        while advance(at):
            pass
        submit(request, at)
    while advance(math.inf):
        pass
    return Served(arrivals, np.array(work.first), np.array(work.last), lengths)


def serve_users(
    model: EngineModel, starts: Floats, lengths: Lengths, until: float, think: Floats, rng: Generator
) -> Served:
    """A closed loop: a user for each of `starts` asks, reads the answer, thinks, and asks again.

    Request k of all users together has the k-th lengths, and again from the first one on where they are used up. What
    is due before `until` is answered under the full load. `think` are pauses to draw from; empty for none.
    """
    source = lengths.work(model.tokens_per_step)
    work = Work([], [])
    engine = replica(model, work, rng)
    ready = sorted((float(start), user) for user, start in enumerate(starts))
    pauses = think[rng.integers(len(think), size=NOISES)].tolist() if len(think) else [0.0]
    user_of: list[int] = []
    sched: list[float] = []
    unanswered = 0  # of those due before `until`
    while True:
        at = ready[0][0] if ready else math.inf
        ended = engine.advance(at + model.delivery)
        for over, request in ended:
            unanswered -= sched[request] < until
            heappush(ready, (over + pauses[request % len(pauses)], user_of[request]))
        if ended:
            continue
        if at >= until and not unanswered:
            break
        _, user = heappop(ready)
        which = len(sched) % len(lengths)
        work.add(source.tokens[which], source.steps[which])
        engine.submit(len(sched), at + model.delivery)
        unanswered += at < until
        sched.append(at)
        user_of.append(user)
    used = lengths.at(np.arange(len(sched)) % len(lengths))
    return Served(np.array(sched), np.array(work.first), np.array(work.last), used)
