"""A discrete-event simulation of one replica under the arrivals of an open loop, or the users of a closed loop, who ask
again after each answer.

The simulation jumps between admissions and ends of answers, not from token to token, so a request of any length takes a
few events. The engine computes one batch step by step: each step begins by admitting waiting requests to free slots,
and ends with one more token for every running request.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np

from enginebench.analysis.arrays import Floats
from enginebench.analysis.plan.model import EngineModel
from enginebench.analysis.plan.not_planned import CannotPlan, NotPlanned
from enginebench.analysis.plan.requests import Lengths, Requests
from enginebench.analysis.plan.steps import Generator

BLOCK = 256  # steps
NOISES = 4096  # steps of noise drawn in advance
MIN_NOISE = 0.2  # share of a step's duration
SPARE = 6.0  # standard deviations beyond the mean number of arrivals that are drawn
MAX_REQUESTS = 1_000_000  # per simulation of users
PAUSES = 4096  # users' pauses drawn in advance


def poisson_arrivals(rate: float, seconds: float, rng: Generator) -> Floats:
    """Draw the arrivals of a Poisson process in [0, `seconds`)."""
    count = int(rate * seconds + SPARE * math.sqrt(rate * seconds)) + 16
    times = np.cumsum(rng.exponential(1 / rate, count))
    return np.asarray(times[times < seconds], dtype=np.float64)


def arrivals_in_turn(rate: float, replicas: int, first: int, seconds: float, rng: Generator) -> list[Floats]:
    """Draw the arrivals that the `first` of the replicas get of a Poisson process that goes to them in turn. In a large
    fleet, the arrivals of the other replicas are not drawn singly: their total gap has a gamma distribution."""
    if first == replicas:
        due = poisson_arrivals(rate, seconds, rng)
        return [due[turn::replicas] for turn in range(replicas)]
    mean = rate * seconds
    rounds = int((mean + SPARE * math.sqrt(mean)) / replicas) + 16
    gaps = rng.exponential(1 / rate, (rounds, first))
    gaps[:, 0] = rng.gamma(replicas - first + 1, 1 / rate, rounds)
    times = np.cumsum(gaps.ravel()).reshape(rounds, first)
    return [own[own < seconds] for own in times.T]


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """Users ask again until `until`, after a pause drawn from `think` (no pause if empty). From `counted` on, at most
    `requests` are due. Requests that are due before the end are answered under the full load."""

    until: float
    think: Floats = field(default_factory=lambda: np.zeros(0))
    counted: float = 0.0
    requests: int = MAX_REQUESTS


class SimulatedEngine:
    """Continuous batching: requests are served in order of arrival. `sched`, `first` and `last` have the instants of
    each request by its number; `last` is `nan` until the request is answered."""

    def __init__(self, model: EngineModel, rng: Generator) -> None:
        self.now = 0.0
        self.sched: list[float] = []
        self.first: list[float] = []
        self.last: list[float] = []
        self._model = model
        self._slots = math.inf if model.slots is None else model.slots
        self._freed = 0  # slots that the next step cannot fill yet
        self._decoded = 0  # decode steps so far
        self._waiting: deque[tuple[int, float, int]] = deque()  # requests with their prompt tokens and steps
        self._running: list[tuple[int, int]] = []  # a heap of the decode step that ends an answer, and its request
        self._noise = _noise_sums(model, rng)
        self._noise_at = 0

    def submit(self, sched: float, at: float, tokens: float, steps: int) -> None:
        """Queue a request that is due at `sched` and reaches the engine at `at`, the current simulated instant."""
        if not self._running and not self._waiting:
            self.now = max(self.now, at)
        self._waiting.append((len(self.sched), tokens, steps))
        self.sched.append(sched)
        self.first.append(math.nan)
        self.last.append(math.nan)

    def advance(self, until: float) -> list[int]:
        """Compute the steps that begin before `until`; when answers end, return early with their requests."""
        running, waiting, cost = self._running, self._waiting, self._model.fit.cost
        while self.now < until and (running or waiting):
            room = self._slots - len(running) - self._freed
            if waiting and room > 0:
                self._prefill(room)
            elif running:
                step = self._model.slower * cost.seconds(len(running))
                steps = 1 if self._freed and waiting else running[0][0] - self._decoded
                if step * (steps - 1) > until - self.now:
                    steps = math.ceil((until - self.now) / step)
                self._pass(step, steps)
                self._decoded += steps
            self._freed = 0
            if ended := self._ended():
                return ended
        return []

    def _prefill(self, room: float) -> None:
        """Compute one step that admits waiting requests."""
        model, running = self._model, self._running
        admitted = [self._waiting.popleft() for _ in range(int(min(len(self._waiting), room)))]
        count = len(admitted) if model.pauses else len(running) + len(admitted)
        tokens = sum(tokens for _, tokens, _ in admitted)
        self._pass(model.slower * model.fit.cost.seconds(count, tokens, len(admitted)), 1)
        self._decoded += not model.pauses
        for request, _, steps in admitted:
            self.first[request] = self.now
            heappush(running, (self._decoded + steps - 1, request))

    def _pass(self, step: float, steps: int) -> None:
        """Let `steps` steps pass with the next noise, which repeats after its end."""
        sums, begin, end = self._noise, self._noise_at, self._noise_at + steps
        laps, self._noise_at = divmod(end, NOISES) if end > NOISES else (0, end)
        self.now += step * (steps + laps * sums[-1] + sums[self._noise_at] - sums[begin])

    def _ended(self) -> list[int]:
        ended = []
        while self._running and self._running[0][0] <= self._decoded:
            _, request = heappop(self._running)
            self.last[request] = self.now
            ended.append(request)
        if self._model.late_handover and self._waiting:
            self._freed += len(ended)
        return ended


def _noise_sums(model: EngineModel, rng: Generator) -> list[float]:
    """Return cumulative sums of the shares by which steps take longer than their cost, zero on average.

    Blocks of measured steps are replayed (moving-block bootstrap: Künsch 1989), because the speed of a machine changes
    in phases of many steps.
    """
    measured = model.fit.noise
    starts = rng.integers(len(measured), size=NOISES // BLOCK)
    noise = measured[(starts[:, None] + np.arange(BLOCK)).ravel() % len(measured)]
    return [0.0, *np.cumsum(np.maximum(noise - noise.mean(), MIN_NOISE - 1)).tolist()]


def serve(
    model: EngineModel, due: Floats, lengths: Lengths, rng: Generator, closed: ClosedLoop | None = None
) -> Requests:
    """Simulate requests that are due at `due`; in a closed loop, these are the users' first requests.

    Request k has the k-th lengths, which are reused from the beginning if exhausted. Raises `CannotPlan` if steps cost
    so little that users send too many requests to simulate.
    """
    engine = SimulatedEngine(model, rng)
    sched, delivery = engine.sched, model.delivery
    tokens = lengths.prefilled.tolist()
    steps = np.maximum(np.rint(lengths.output / model.tokens_per_step), 1).astype(int).tolist()
    think = np.zeros(1) if closed is None or not len(closed.think) else closed.think
    pauses = think[rng.integers(len(think), size=PAUSES)].tolist() if len(think) > 1 else think.tolist()
    until = math.inf if closed is None else closed.until
    left = 0 if closed is None else closed.requests
    ready = sorted(due.tolist())
    unanswered = 0  # due before `until`
    while True:
        at = ready[0] if ready else math.inf
        if ended := engine.advance(at + delivery):
            for request in ended:
                unanswered -= sched[request] < until
                if closed is not None:
                    heappush(ready, engine.now + pauses[request % len(pauses)])
            continue
        if at >= until and not unanswered:
            break
        if closed is not None and len(sched) >= MAX_REQUESTS:
            raise CannotPlan(NotPlanned.TOO_FAST)
        heappop(ready)
        if closed is not None:
            left -= at >= closed.counted
            if left == 0:  # still answer requests due at this very instant
                until = min(until, math.nextafter(at, math.inf))
        unanswered += at < until
        which = len(sched) % len(tokens)
        engine.submit(at, at + delivery, tokens[which], steps[which])
    asked = lengths.at(np.arange(len(sched)) % len(lengths))
    first, last = np.array(engine.first), np.array(engine.last)
    return Requests.simulated(np.array(sched), first, last, asked, model.tokens_per_step)
