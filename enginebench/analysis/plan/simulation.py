"""Loads on a simulated replica: arrivals of an open loop, or users of a closed one who ask again after each answer."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np

from enginebench.analysis.arrays import Floats
from enginebench.analysis.plan.model import EngineModel
from enginebench.analysis.plan.not_planned import CannotPlan, NotPlanned
from enginebench.analysis.plan.requests import Lengths, Requests
from enginebench.analysis.plan.simulated_engine import NOISES, Work, engine_of
from enginebench.analysis.plan.steps import Generator

SPARE = 6.0  # standard deviations of the number of arrivals, drawn beyond its mean
MAX_REQUESTS = 1_000_000  # of one closed loop


def gamma_arrivals(rate: float, cv: float, seconds: float, rng: Generator) -> Floats:
    """Draw arrivals whose gaps are gamma-distributed with this coefficient of variation: 1 is a Poisson process, 0 even
    spacing. The first gap has passed in part at 0, by chance."""
    expected = rate * seconds
    count = int(expected + SPARE * max(cv, 1.0) * math.sqrt(expected)) + 16
    gaps = rng.gamma(1 / cv**2, cv**2 / rate, count) if cv else np.full(count, 1 / rate)
    gaps[0] *= rng.random()
    times = np.cumsum(gaps)
    return np.asarray(times[times < seconds], dtype=np.float64)


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """Users ask again until `until`, after a pause drawn from `think` (empty for none). From `counted` on, no more than
    `requests` are due. What is due before the end is answered under the full load."""

    until: float
    think: Floats = field(default_factory=lambda: np.zeros(0))
    counted: float = 0.0
    requests: int = MAX_REQUESTS


def serve(
    model: EngineModel, due: Floats, lengths: Lengths, rng: Generator, closed: ClosedLoop | None = None
) -> Requests:
    """Simulate requests that are due at `due`; in a closed loop these are each user's first ones.

    Request k has the k-th lengths, and again from the first one on if they are used up. Raises `CannotPlan` if users of
    an engine whose steps cost hardly anything send too many requests: that would never end.
    """
    source, work = Work.of(lengths, model.tokens_per_step), Work([], [])
    engine = engine_of(model, work, rng)
    advance, delivery = engine.advance, model.delivery
    think = np.zeros(1) if closed is None or not len(closed.think) else closed.think
    pauses = think[rng.integers(len(think), size=NOISES)].tolist() if len(think) > 1 else think.tolist()
    until = math.inf if closed is None else closed.until
    left = 0 if closed is None else closed.requests
    ready = sorted(due.tolist())
    sched: list[float] = []
    unanswered = 0  # of those due before `until`
    while True:
        at = ready[0] if ready else math.inf
        ended = advance(at + delivery)
        for over, request in ended:
            unanswered -= sched[request] < until
            if closed is not None:
                heappush(ready, over + pauses[request % len(pauses)])
        if ended:
            continue
        if at >= until and not unanswered:
            break
        if len(sched) >= MAX_REQUESTS:
            raise CannotPlan(NotPlanned.TOO_FAST)
        heappop(ready)
        which = len(sched) % len(lengths)
        work.add(source.tokens[which], source.steps[which])
        engine.submit(len(sched), at + delivery)
        if closed is not None:
            left -= at >= closed.counted
            if left == 0:  # what is due at this very instant is still answered
                until = min(until, math.nextafter(at, math.inf))
        unanswered += at < until
        sched.append(at)
    asked = lengths.at(np.arange(len(sched)) % len(lengths))
    first, last = np.array(work.first), np.array(work.last)
    return Requests.simulated(np.array(sched), first, last, asked, model.tokens_per_step)
