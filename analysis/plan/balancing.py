"""Several replicas behind a load balancer, simulated together where the balancer looks at them all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import heappop, heappush

import numpy as np

from analysis.plan.arrivals import gamma_arrivals
from analysis.plan.model import EngineModel
from analysis.plan.outcome import Requests, requests_of
from analysis.plan.replica import replica, serve_arrivals
from analysis.plan.settings import Balancer
from analysis.plan.steps import Floats, Generator
from analysis.plan.work import Lengths


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
    return together([requests_of(serve_arrivals(model, p, lengths.drawn(len(p), rng), rng)) for p in parts])


def together(parts: Sequence[Requests]) -> Requests:
    """The requests of several replicas."""
    sched, first, last = (np.concatenate([getattr(one, name) for one in parts]) for name in ("sched", "first", "last"))
    names = ("prefilled", "prompt", "output")
    lengths = Lengths(*(np.concatenate([getattr(one.lengths, name) for one in parts]) for name in names))
    return Requests(sched, first, last, lengths)


def _least_requests(model: EngineModel, arrivals: Floats, lengths: Lengths, count: int, rng: Generator) -> Requests:
    """Ties go round."""
    work = lengths.work(model.tokens_per_step)
    engines = [replica(model, work, rng) for _ in range(count)]
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
    return Requests(arrivals, np.array(work.first), np.array(work.last), lengths)
