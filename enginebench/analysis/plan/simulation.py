"""Loads on simulated replicas: arrivals of an open loop, users of a closed one, and several replicas behind a load
balancer, together where the balancer looks at them all.
"""

from __future__ import annotations

import math
from heapq import heappop, heappush

import numpy as np

from enginebench.analysis.arrays import Floats
from enginebench.analysis.plan.model import EngineModel
from enginebench.analysis.plan.requests import Lengths, Requests, joined
from enginebench.analysis.plan.settings import Balancer, CannotPlan
from enginebench.analysis.plan.simulated_engine import NOISES, Work, engine_of
from enginebench.analysis.plan.steps import Generator

SPARE = 6.0  # standard deviations of the number of arrivals, drawn beyond its mean
MOST_SIMULATED = 1_000_000  # requests of one closed loop


def gamma_arrivals(rate: float, cv: float, seconds: float, rng: Generator) -> Floats:
    """Gaps are gamma-distributed with this coefficient of variation: 1 is a Poisson process, 0 even spacing.

    The first gap has passed in part at 0, by chance.
    """
    expected = rate * seconds
    count = int(expected + SPARE * max(cv, 1.0) * math.sqrt(expected)) + 16
    gaps = rng.gamma(1 / cv**2, cv**2 / rate, count) if cv else np.full(count, 1 / rate)
    gaps[0] *= rng.random()
    times = np.cumsum(gaps)
    return np.asarray(times[times < seconds], dtype=np.float64)


def serve_arrivals(model: EngineModel, arrivals: Floats, lengths: Lengths, rng: Generator) -> Requests:
    """An open loop: request k arrives at `arrivals[k]` with the k-th lengths."""
    work = Work.of(lengths, model.tokens_per_step)
    engine = engine_of(model, work, rng)
    advance, submit = engine.advance, engine.submit
    for request, at in enumerate((arrivals + model.delivery).tolist()):
        while advance(at):
            pass
        submit(request, at)
    while advance(math.inf):
        pass
    return _served(model, arrivals, work, lengths)


def _served(model: EngineModel, sched: Floats, work: Work, lengths: Lengths) -> Requests:
    """A chunk holds the tokens of a step."""
    return Requests.served(sched, np.array(work.first), np.array(work.last), lengths, model.tokens_per_step)


def serve_users(
    model: EngineModel,
    starts: Floats,
    lengths: Lengths,
    until: float,
    think: Floats,
    rng: Generator,
    bound: tuple[float, int] | None = None,
) -> Requests:
    """A closed loop: a user for each of `starts` asks, reads the answer, thinks, and asks again.

    Request k of all users together has the k-th lengths, and again from the first one on where they are used up. What
    is due before `until` is answered under the full load. `think` are pauses to draw from; empty for none. `bound` is
    an instant and a number of requests due from then on, after which `until` has come.

    Raises `CannotPlan` where that takes too many requests: those of an engine whose steps cost nothing never end.
    """
    source = Work.of(lengths, model.tokens_per_step)
    work = Work([], [])
    engine = engine_of(model, work, rng)
    ready = sorted((float(start), user) for user, start in enumerate(starts))
    pauses = think[rng.integers(len(think), size=NOISES)].tolist() if len(think) else [0.0]
    user_of: list[int] = []
    sched: list[float] = []
    unanswered = 0  # of those due before `until`
    since, left = bound or (0.0, MOST_SIMULATED)
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
        if len(sched) >= MOST_SIMULATED:
            raise CannotPlan(
                f"{len(starts)} users would send more than {MOST_SIMULATED:,} requests within {until:.0f} s by the "
                f"fitted step cost, of {model.cost.seconds(1):.2g} s for one request: measure longer answers."
            )
        _, user = heappop(ready)
        which = len(sched) % len(lengths)
        work.add(source.tokens[which], source.steps[which])
        engine.submit(len(sched), at + model.delivery)
        left -= at >= since
        if left == 0:  # what is due at this very instant is still answered
            until = min(until, math.nextafter(at, math.inf))
        unanswered += at < until
        sched.append(at)
        user_of.append(user)
    used = lengths.at(np.arange(len(sched)) % len(lengths))
    return _served(model, np.array(sched), work, used)


def serve_fleet(
    model: EngineModel,
    rate: float,
    seconds: float,
    lengths: Lengths,
    replicas: int,
    balancer: Balancer,
    rng: Generator,
    simulated: int | None = None,
) -> Requests:
    """Poisson arrivals at `rate` in [0, `seconds`) on `simulated` of `replicas` equal replicas; without it, on all.

    Round robin gives a replica every n-th arrival, whose gaps are sums of n gaps; a random choice from many replicas
    gives it a Poisson process. `least_requests` chooses the replica with the fewest in flight: a smaller fleet stands
    for a large one, which balances a little worse than the whole.
    """
    count = min(simulated or replicas, replicas)
    each = rate / replicas
    if balancer == "least_requests":
        arrivals = gamma_arrivals(each * count, 1.0, seconds, rng)
        return _least_requests(model, arrivals, lengths.drawn(len(arrivals), rng), count, rng)
    if count == replicas:
        arrivals = gamma_arrivals(rate, 1.0, seconds, rng)
        turn = np.arange(len(arrivals)) % replicas
        owner = turn if balancer == "round_robin" else rng.integers(replicas, size=len(arrivals))
        parts = [arrivals[owner == k] for k in range(replicas)]
    else:
        of_one = 1 / math.sqrt(replicas) if balancer == "round_robin" else 1.0
        parts = [gamma_arrivals(each, of_one, seconds, rng) for _ in range(count)]
    return joined([serve_arrivals(model, part, lengths.drawn(len(part), rng), rng) for part in parts])


def _least_requests(model: EngineModel, arrivals: Floats, lengths: Lengths, count: int, rng: Generator) -> Requests:
    """Ties go round."""
    work = Work.of(lengths, model.tokens_per_step)
    engines = [engine_of(model, work, rng) for _ in range(count)]
    in_flight = [0] * count
    leaving: list[tuple[float, int]] = []
    turn = 0
    for request, at in enumerate((arrivals + model.delivery).tolist()):
        for index, engine in enumerate(engines):
            while ended := engine.advance(at):
                for over, _ in ended:
                    heappush(leaving, (over, index))
        while leaving and leaving[0][0] <= at:
            in_flight[heappop(leaving)[1]] -= 1
        least = min(in_flight)
        turn = next(k % count for k in range(turn + 1, turn + 1 + count) if in_flight[k % count] == least)
        in_flight[turn] += 1
        engines[turn].submit(request, at)
    for engine in engines:
        while engine.advance(math.inf):
            pass
    return _served(model, arrivals, work, lengths)
