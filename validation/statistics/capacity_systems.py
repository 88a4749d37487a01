"""Servers of known capacity: queues by their exact laws, continuous batching by simulating millions of requests.

They share no code with the search that is judged by them. A system serves Poisson or other arrivals with a mean gap of
1/rate, first come, first served. Its latency is the wait, or the time to the first token; a request "meets" `limit` if
its latency is at most that, and capacity is the rate at which a share `Q` of the requests meets it.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy import optimize, stats
from scipy.signal import lfilter

from validation.statistics.systems import Draw, Floats, Generator, lognormal

TRUTH_REQUESTS = 2_000_000
Q = 0.95  # share of the requests that meets the limit at capacity
Changing = Callable[[Generator, int], Floats]
POINTS = 8  # loads at which a capacity without an exact law is simulated


def exponential(rng: Generator, shape: tuple[int, ...]) -> Floats:
    return rng.exponential(1.0, shape)


def constant(rng: Generator, shape: tuple[int, ...]) -> Floats:
    return np.ones(shape)


def gamma(cv: float) -> Draw:
    return lambda rng, shape: rng.gamma(1 / cv**2, cv**2, shape)


def hyperexponential(cv: float) -> Draw:
    """Draw from a mix of two exponential distributions with balanced means and the coefficient of variation `cv`."""
    p = 0.5 * (1 + math.sqrt((cv**2 - 1) / (cv**2 + 1)))

    def draw(rng: Generator, shape: tuple[int, ...]) -> Floats:
        first = rng.random(shape) < p
        return rng.exponential(1.0, shape) / np.where(first, 2 * p, 2 * (1 - p))

    return draw


def two_classes(rng: Generator, shape: tuple[int, ...]) -> Floats:
    """Draw service times of which one in five is six times as long as the others."""
    return np.where(rng.random(shape) < 0.2, 3.0, 0.5)


@dataclass(frozen=True, slots=True)
class Trace:
    """Instants of arrival in order, latencies, and ends of answers, in seconds; one element for each request."""

    sent: Floats
    latency: Floats
    ended: Floats


@dataclass(frozen=True, slots=True)
class System:
    """`serve(rng, sent)` returns latencies and ends. `exact` computes the capacity if a law is known."""

    name: str
    serve: Callable[[Generator, Floats], tuple[Floats, Floats]]
    limit: float
    saturation: float  # approximate, in requests per second
    gap: Draw = exponential
    exact: Callable[[float, float], float] | None = None  # takes the limit and q
    changing: Changing | None = None  # arrivals whose rate changes: factors of successive gaps

    def run(self, rate: float, requests: int, rng: Generator) -> Trace:
        gaps = self.gap(rng, (requests,))
        if self.changing:
            gaps = gaps * self.changing(rng, requests)
        sent = np.cumsum(gaps) / rate
        latency, ended = self.serve(rng, sent)
        return Trace(sent, latency, ended)

    def capacity(self, rng: Generator) -> float:
        """Return the capacity in requests per second."""
        if self.exact is not None:
            return self.exact(self.limit, Q)
        low, high = 0.05 * self.saturation, self.saturation
        for _ in range(9):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if self._share(middle, TRUTH_REQUESTS // 40, rng) >= Q else (low, middle)
        rates = math.sqrt(low * high) * np.linspace(0.96, 1.04, POINTS)
        shares = np.array([self._share(rate, TRUTH_REQUESTS // POINTS, rng) for rate in rates])
        slope, at = np.polyfit(np.log(rates), np.log((1 - shares) / shares), 1)
        return float(np.exp((math.log((1 - Q) / Q) - at) / slope))

    def _share(self, rate: float, requests: int, rng: Generator) -> float:
        latency = self.run(rate, requests, rng).latency[requests // 20 :]
        return float((latency <= self.limit).mean())


def wandering(spread: float, memory: float = 200) -> Changing:
    """Return a slowly changing factor of mean 1: the exponential of an AR(1) that forgets in `memory` requests."""

    def draw(rng: Generator, requests: int) -> Floats:
        rho = math.exp(-1 / memory)
        start = [rho * spread * rng.standard_normal()]  # stationary, because the load began before the probe
        level, _ = lfilter([spread * math.sqrt(1 - rho**2)], [1, -rho], rng.standard_normal(requests), zi=start)
        return np.asarray(np.exp(level - spread**2 / 2), dtype=np.float64)

    return draw


def queue(rng: Generator, sent: Floats, servers: int, service: Draw) -> tuple[Floats, Floats]:
    """Return waits and ends with `servers` servers, each with a mean service time of 1 s."""
    times = service(rng, sent.shape)
    if servers == 1 or service is constant:
        wait = np.empty_like(sent)
        for first in range(servers):  # with equal service times the servers take turns
            wait[first::servers] = _waits(sent[first::servers], times[first::servers])
        return wait, sent + wait + times
    free, wait_of = [0.0] * servers, []
    for at, lasts in zip(sent.tolist(), times.tolist(), strict=True):
        begins = max(free[0], at)
        heapq.heapreplace(free, begins + lasts)
        wait_of.append(begins - at)
    wait = np.array(wait_of)
    return wait, sent + wait + times


def _waits(sent: Floats, times: Floats) -> Floats:
    """Return the waits at one server (Lindley 1952)."""
    steps = np.cumsum(np.concatenate([[0.0], times[:-1] - np.diff(sent)]))
    return np.asarray(steps - np.minimum.accumulate(steps), dtype=np.float64)


def batching(
    rng: Generator,
    sent: Floats,
    slots: int,
    step: float,
    per_running: float,
    prefill: float,
    prompt: Draw,
    answer: Draw,
    tokens: float,
) -> tuple[Floats, Floats]:
    """Return times to the first token and ends with continuous batching.

    Each step gives every running answer a token; the prompts that it admits stall all of them.
    """
    prompts = (prefill * prompt(rng, sent.shape)).tolist()
    lengths = np.maximum(1, np.rint(tokens * answer(rng, sent.shape))).astype(int).tolist()
    arrivals = [*sent.tolist(), math.inf]
    first, ends = [0.0] * len(lengths), [0.0] * len(lengths)
    waiting: deque[int] = deque()
    running: list[tuple[int, int]] = []  # step in which it ends, request
    now, number, following = 0.0, 0, 0
    while following < len(lengths) or running or waiting:
        if not running and not waiting:
            now = max(now, arrivals[following])
        while arrivals[following] <= now:
            waiting.append(following)
            following += 1
        number += 1
        admitted = []
        cost = step
        while waiting and len(running) < slots:
            request = waiting.popleft()
            heapq.heappush(running, (number + lengths[request] - 1, request))
            cost += prompts[request]
            admitted.append(request)
        now += cost + per_running * len(running)
        for request in admitted:
            first[request] = now
        while running and running[0][0] <= number:
            ends[heapq.heappop(running)[1]] = now
    return np.array(first) - sent, np.array(ends)


def mmc_capacity(limit: float, q: float, servers: int) -> float:
    """Solve P(W > t) = C(c, a) e^{-(c - λ) t}, with Erlang's C (Gross et al., Fundamentals of Queueing Theory)."""

    def late(rate: float) -> float:
        terms = [rate**k / math.factorial(k) for k in range(servers + 1)]
        queued = terms[-1] * servers / (servers - rate)
        return queued / (sum(terms[:-1]) + queued) * math.exp(-(servers - rate) * limit)

    return float(optimize.brentq(lambda rate: late(rate) - (1 - q), 1e-3 * servers, 0.9999 * servers))


def mdc_capacity(limit: float, q: float, servers: int) -> float:
    """Use Franx 2001, A simple solution for the M/D/c waiting time distribution, Operations Research Letters 29."""
    return float(
        optimize.brentq(
            lambda rate: _mdc_within(rate, servers, limit) - q, 0.2 * servers, 0.985 * servers, xtol=1e-5 * servers
        )
    )


def _mdc_within(rate: float, servers: int, limit: float) -> float:
    """Return P(W ≤ limit) with service times of 1. The number in the system after a service time is the number beyond
    `servers` before it, plus a Poisson number of arrivals."""
    states = 1200
    arrivals = stats.poisson.pmf(np.arange(states), rate)
    chain = np.zeros((states, states))
    for before in range(states):
        left = max(0, before - servers)
        chain[before, left:] = arrivals[: states - left]
    chain[:, -1] += 1 - chain.sum(axis=1)
    system = np.vstack([(chain.T - np.eye(states))[:-1], np.ones(states)])
    share = np.linalg.solve(system, np.concatenate([np.zeros(states - 1), [1.0]]))
    queued = np.cumsum(share)[servers:]  # P(at most j in the queue)
    k = math.floor(limit) + 1
    at = rate * (k - limit)
    poisson = stats.poisson.pmf(np.arange(k * servers), at)
    return float((queued[k * servers - 1 :: -1][: k * servers] * poisson).sum())


def mmc(servers: int, limit: float) -> System:
    serve, exact = partial(queue, servers=servers, service=exponential), partial(mmc_capacity, servers=servers)
    return System(f"M/M/{servers}, wait ≤ {limit:g}", serve, limit, servers, exact=exact)


def mdc(servers: int, limit: float) -> System:
    serve, exact = partial(queue, servers=servers, service=constant), partial(mdc_capacity, servers=servers)
    return System(f"M/D/{servers}, wait ≤ {limit:g}", serve, limit, servers, exact=exact)


def ggc(name: str, gap: Draw, service: Draw, servers: int, limit: float, changing: Changing | None = None) -> System:
    serve = partial(queue, servers=servers, service=service)
    return System(f"{name}/{servers}, wait ≤ {limit:g}", serve, limit, servers, gap, changing=changing)


def batched(name: str, limit: float, **how: float) -> System:
    settings: dict[str, float] = {"slots": 16, "step": 0.02, "per_running": 0.001, "prefill": 0.02, "tokens": 40}
    settings |= how
    serve = partial(batching, prompt=lognormal(0.8), answer=lognormal(0.6), **settings)  # type: ignore[arg-type]
    per_answer = settings["tokens"] * (settings["step"] + settings["per_running"] * settings["slots"])
    saturation = settings["slots"] / (per_answer + settings["slots"] * settings["prefill"])
    return System(f"batching, {name}", serve, limit, 1.1 * saturation)


def always_late(system: System, share: float) -> System:
    """Return the system with a share of requests that miss the objective at any load."""

    def serve(rng: Generator, sent: Floats) -> tuple[Floats, Floats]:
        latency, ended = system.serve(rng, sent)
        return np.where(rng.random(sent.shape) < share, np.inf, latency), ended

    def exact(limit: float, q: float) -> float:
        assert system.exact is not None
        return system.exact(limit, q / (1 - share))

    return replace(system, name=f"{system.name}, {share:.1%} always late", serve=serve, exact=exact)


SYSTEMS = (
    mdc(4, 1.0),
    mmc(4, 2.0),
    mmc(1, 5.0),
    batched("16 slots", 0.5),
    batched("64 slots, long answers", 1.0, slots=64, tokens=80, prefill=0.01),
    ggc("gamma arrivals, cv 2, D", gamma(2.0), constant, 8, 1.0),
    ggc("M/two classes", exponential, two_classes, 4, 2.0),
    ggc("arrivals modulated over 200, D", exponential, constant, 6, 2.0, changing=wandering(0.2, 200)),
    always_late(mmc(4, 2.0), 0.035),
)
