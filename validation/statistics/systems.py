"""Systems under load whose true long-run distribution is known, or found by simulating many more runs.

Every function simulates `runs` independent runs at the same time and returns a `Trace` for each: the requests of a
window of `seconds`, in the order in which they were scheduled.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.signal import lfilter

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Generator = np.random.Generator


@dataclass(frozen=True, slots=True)
class Trace:
    """A simulated run: requests scheduled in [0, seconds) in order, and the answers that ended in it."""

    seconds: float
    latency: Floats
    user: Integers
    ended: Floats  # instants of the answers that ended in the window
    ended_user: Integers


Draw = Callable[[Generator, tuple[int, ...]], Floats]


def lognormal(cv: float) -> Draw:
    sigma = math.sqrt(math.log1p(cv**2))
    return lambda rng, shape: np.exp(sigma * rng.standard_normal(shape) - sigma**2 / 2)


def uniform(half: float) -> Draw:
    """Draw uniformly from 1 − `half` to 1 + `half`."""
    return lambda rng, shape: rng.uniform(1 - half, 1 + half, shape)


VARIED = lognormal(1.0)


def batches(size: float) -> Draw:
    """Draw gaps between arrivals that come in random batches of `size` on average (geometric)."""

    def draw(rng: Generator, shape: tuple[int, ...]) -> Floats:
        first = rng.random(shape) < 1 / size
        return np.where(first, rng.exponential(size, shape), 0.0)

    return draw


def trace(seconds: float, start: float, sent: Floats, latency: Floats, user: Integers) -> Trace:
    order = np.argsort(sent, kind="stable")
    sent, latency, user = sent[order] - start, latency[order], user[order]
    inside = (sent >= 0) & (sent < seconds)
    end = sent + latency
    done = (end >= 0) & (end < seconds)
    return Trace(seconds, latency[inside], user[inside], end[done], user[done])


def autocorrelated(
    rng: Generator, runs: int, requests: int = 1000, users: int = 40, rho: float = 0.9, seconds: float = 60.0
) -> list[Trace]:
    """Simulate lognormal latencies whose logarithms are an AR(1) process, and Poisson arrivals of random users."""
    length = requests + 6 * int(math.sqrt(requests))
    shocks = rng.standard_normal((runs, length + 400)) * math.sqrt(1 - rho**2)
    latencies = np.exp(lfilter([1], [1, -rho], shocks, axis=1)[:, 400:])
    traces = []
    for row in latencies:
        number = min(int(rng.poisson(requests)), length)
        sent = np.sort(rng.uniform(0, seconds, number))
        user = rng.integers(users, size=number)
        traces.append(Trace(seconds, row[:number], user, sent, user))
    return traces


def pinned(
    rng: Generator,
    runs: int,
    users: int = 40,
    seconds: float = 60.0,
    speeds: tuple[float, ...] = (1.0, 1.3, 1.7, 2.5),
    spread: float = 0.3,
    requests: int = 1000,
    crowding: float = 0.0,
) -> list[Trace]:
    """Simulate users who stay with a replica drawn at random, and send again when the answer has ended.

    The share `crowding` of a latency is proportional to the users of the replica.
    """
    cycle = users * seconds / requests
    traces = []
    for _ in range(runs):
        replica = rng.integers(len(speeds), size=users)
        crowd = np.bincount(replica, minlength=len(speeds))[replica] * len(speeds) / users
        pace = np.array(speeds)[replica] * (1 + crowding * (crowd - 1)) * cycle / np.mean(speeds)
        count = int(3 * seconds / (cycle * (1 - crowding) * min(speeds) / np.mean(speeds))) + 10
        times = pace[:, None] * np.exp(spread * rng.standard_normal((users, count)) - spread**2 / 2)
        ends = np.cumsum(times, axis=1)
        user = np.repeat(np.arange(users), count)
        traces.append(trace(seconds, seconds * 0.7, (ends - times).ravel(), times.ravel(), user))
    return traces


def closed_queue(
    rng: Generator,
    runs: int,
    users: int = 40,
    servers: int = 4,
    requests: int = 1000,
    think: float = 0.0,
    draw: Draw = VARIED,
    answer: float = 0.2,
) -> list[Trace]:
    """Simulate users who wait for their answers, and share a first-come, first-served queue of a few servers."""
    warm = max(3 * users, requests // 3)
    steps = warm + requests + 6 * users + 8 * math.isqrt(requests)  # the window is full even in the fastest run
    ready = rng.uniform(0, answer * users / servers + think, (runs, users))
    free = np.zeros((runs, servers))
    rows = np.arange(runs)
    sent, end, user = np.empty((steps, runs)), np.empty((steps, runs)), np.empty((steps, runs), dtype=np.int64)
    for k in range(steps):
        who, server = ready.argmin(axis=1), free.argmin(axis=1)
        now = ready[rows, who]
        done = np.maximum(now, free[rows, server]) + answer * draw(rng, (runs,))
        free[rows, server] = done
        sent[k], end[k], user[k] = now, done, who
        ready[rows, who] = done + (rng.exponential(think, runs) if think else 0.0)
    start = np.median(sent[warm])
    seconds = float(np.median(sent[warm + requests]) - start)
    assert ready.min() >= start + seconds, "a run ends before its window"
    return [trace(seconds, start, sent[:, i], end[:, i] - sent[:, i], user[:, i]) for i in range(runs)]


def replicas(
    rng: Generator,
    runs: int,
    users: int = 60,
    seconds: float = 150.0,
    speeds: tuple[float, ...] = (1.0, 1.0, 1.4, 2.0),
    answer: float = 0.2,
    think: float = 1.0,
) -> list[Trace]:
    """Simulate users who stay with a replica drawn at random, which has two servers and its own queue."""
    traces = []
    for _ in range(runs):
        replica = rng.integers(len(speeds), size=users)
        rows: list[tuple[float, float, int]] = []
        for k, slowness in enumerate(speeds):
            ready = {int(user): float(rng.uniform(0, 3.0)) for user in np.flatnonzero(replica == k)}
            free = [0.0, 0.0]
            while ready:
                user = min(ready, key=ready.__getitem__)
                now, server = ready[user], free.index(min(free))
                if now > 1.4 * seconds:
                    break
                free[server] = max(now, free[server]) + answer * slowness * rng.exponential()
                rows.append((now, free[server] - now, user))
                ready[user] = free[server] + rng.exponential(think)
        sent, latency, user_of = (np.array(column) for column in zip(*rows, strict=True))
        traces.append(trace(seconds, 0.3 * seconds, sent, latency, user_of.astype(np.int64)))
    return traces


def open_queue(
    rng: Generator,
    runs: int,
    servers: int = 4,
    requests: int = 3000,
    load: float = 0.7,
    gap: Draw = VARIED,
    draw: Draw = VARIED,
    answer: float = 0.2,
) -> list[Trace]:
    """Simulate arrivals at a rate, in bursts if the gaps vary much, at a first-come, first-served queue."""
    warm = requests // 2 + 2000
    steps = warm + requests + requests // 2 + 500  # arrivals in bursts reach their mean rate slowly
    mean_gap = answer / servers / load
    sent = np.cumsum(mean_gap * gap(rng, (steps, runs)), axis=0)
    service = answer * draw(rng, (steps, runs))
    free, end, rows = np.zeros((runs, servers)), np.empty((steps, runs)), np.arange(runs)
    for k in range(steps):
        server = free.argmin(axis=1)
        end[k] = np.maximum(sent[k], free[rows, server]) + service[k]
        free[rows, server] = end[k]
    seconds, start = requests * mean_gap, warm * mean_gap
    assert sent[-1].min() >= start + seconds, "a run ends before its window"
    user = np.arange(steps)
    return [trace(seconds, start, sent[:, i], end[:, i] - sent[:, i], user) for i in range(runs)]


def bursts(
    rng: Generator,
    runs: int,
    requests: int = 3000,
    seconds: float = 60.0,
    slow_share: float = 0.1,
    bursts_per_run: float = 20.0,
    slowdown: float = 4.0,
    arrivals: float = 3.0,
) -> list[Trace]:
    """Simulate a server that is slow for random stretches, in which `arrivals` times as many requests come."""
    cycle = seconds / bursts_per_run
    traces = []
    for _ in range(runs):
        switches = np.empty(int(6 * bursts_per_run) + 40)
        switches[0::2] = rng.exponential(cycle * (1 - slow_share), len(switches) // 2)
        switches[1::2] = rng.exponential(cycle * slow_share, len(switches) // 2)
        edges = np.cumsum(switches) - seconds  # they cover three windows
        base = requests / seconds / (1 - slow_share + slow_share * arrivals)
        sent = np.sort(rng.uniform(0, seconds, rng.poisson(base * arrivals * seconds)))
        slow = np.searchsorted(edges, sent) % 2 == 1
        keep = slow | (rng.random(len(sent)) < 1 / arrivals)
        sent, slow = sent[keep], slow[keep]
        latency = np.exp(0.5 * rng.standard_normal(len(sent))) * np.where(slow, slowdown, 1.0) * 0.1
        traces.append(trace(seconds, 0.0, sent, latency, np.arange(len(sent))))
    return traces


def batching(
    rng: Generator,
    runs: int,
    users: int = 40,
    slots: int = 16,
    tokens: int = 100,
    draw: Draw | None = None,
    think: float = 0.0,
    seconds: float = 60.0,
    step: float = 0.02,
    prefill: float = 0.05,
    jitter: float = 0.05,
    ramp: float = 1.0,
    warm: float = 30.0,
) -> list[Trace]:
    """Simulate continuous batching: each step of the engine gives every running answer a token, and admits waiting
    requests to free slots at a cost per prompt. Fixed lengths (no `draw`), no `think` time (seconds, exponential) and
    starts within `ramp` seconds make convoys.

    Latency is the time to the first token; an answer ends with its last token.
    """
    clock, begin = np.zeros(runs), warm + rng.uniform(0, 20.0, runs)
    ready = np.sort(rng.uniform(0, ramp, (runs, users)), axis=1)  # when each user sends next
    left, waiting = np.zeros((runs, users)), np.ones((runs, users), dtype=bool)
    first: list[tuple[Integers, Integers, Floats, Floats]] = []  # run, user, sent, time to the first token
    last: list[tuple[Integers, Integers, Floats]] = []  # run, user, end
    while bool((clock < begin + seconds + 5).any()):
        running = ~waiting
        queue = np.where(waiting & (ready <= clock[:, None]), ready, np.inf)
        place = queue.argsort(axis=1).argsort(axis=1)
        admitted = np.isfinite(queue) & (place < (slots - running.sum(axis=1))[:, None])
        idle = ~running.any(axis=1) & ~admitted.any(axis=1)
        cost = step + 0.0005 * running.sum(axis=1) + prefill * admitted.sum(axis=1)
        cost = np.maximum(cost * (1 + jitter * rng.standard_normal(runs)), 1e-4)
        clock = np.where(idle, ready.min(axis=1) + 1e-9, clock + cost)
        lengths = tokens * (draw(rng, (runs, users)) if draw is not None else np.ones((runs, users)))
        left = np.where(running, left - 1, np.where(admitted, np.maximum(np.round(lengths), 2) - 1, left))
        over = running & (left <= 0)
        run, user = np.nonzero(admitted)
        first.append((run, user, ready[run, user], clock[run] - ready[run, user]))
        run, user = np.nonzero(over)
        last.append((run, user, clock[run]))
        ready[run, user] = clock[run] + 1e-6 * user + (rng.exponential(think, len(run)) if think else 0.0)
        waiting = (waiting & ~admitted) | over
    return _windows(runs, begin, seconds, first, last)


def _windows(
    runs: int,
    begin: Floats,
    seconds: float,
    first: list[tuple[Integers, Integers, Floats, Floats]],
    last: list[tuple[Integers, Integers, Floats]],
) -> list[Trace]:
    run, user, sent, latency = (np.concatenate(part) for part in zip(*first, strict=True))
    over_run, over_user, over = (np.concatenate(part) for part in zip(*last, strict=True))
    sent, over = sent - begin[run], over - begin[over_run]
    traces = []
    for k in range(runs):
        mine = np.flatnonzero((run == k) & (sent >= 0) & (sent < seconds))
        mine = mine[np.argsort(sent[mine], kind="stable")]
        done = (over_run == k) & (over >= 0) & (over < seconds)
        traces.append(Trace(seconds, latency[mine], user[mine], over[done], over_user[done]))
    return traces
