"""A batching engine with a known step cost, computed step by step, and a run folder of the records of its clients.

The engine is the truth for judging `enginebench plan`. It shares no code with the plan's own simulation: every token of
every request is computed, and written as a load generator would have recorded it.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from enginebench.records.load import Load, Rate, Users
from enginebench.records.request import RequestRecord
from enginebench.records.stage import SECOND, Extent, Stage, StagePlan
from validation.run_folder import answered, write_folder


@dataclass(frozen=True, slots=True)
class BatchingServer:
    """A step takes `base` seconds, plus `per_running` for each request that receives a token at its end, `per_token`
    for each prompt token and `per_prompt` for each prompt that it prefills, `batched` if it computes several requests
    or a prompt, and `per_running_beyond` for each request beyond `knee`. The sum is multiplied by lognormal noise with
    the coefficient of variation `jitter`.

    `pauses`: running requests pause while prompts are prefilled.
    `late_handover`: a waiting request gets a freed slot one step late, because it waits outside the engine.
    `turnaround`: seconds from the end of an answer to the same user's next request.
    """

    base: float = 0.02
    per_running: float = 0.002
    per_token: float = 0.0005
    per_prompt: float = 0.0
    batched: float = 0.0
    per_running_beyond: float = 0.0
    knee: int = 0
    slots: int = 16
    pauses: bool = False
    late_handover: bool = False
    turnaround: float = 0.0
    jitter: float = 0.0
    delivery: float = 0.0005
    slowdown: Callable[[float], float] = field(default=lambda now: 1.0)


@dataclass(frozen=True, slots=True)
class Asked:
    """The ranges from which the lengths of prompts and answers are drawn, in tokens."""

    prompt: tuple[int, int] = (20, 100)
    output: tuple[int, int] = (16, 64)

    def draw(self, rng: Random) -> tuple[int, int]:
        return rng.randint(*self.prompt), rng.randint(*self.output)


@dataclass(slots=True)
class _Request:
    sched: float
    user: int | None
    prompt: int
    output: int
    stamps: list[float] = field(default_factory=list)


def serve(
    server: BatchingServer, due: Iterable[tuple[float, int | None]], lengths: Asked, rng: Random, until: float
) -> list[_Request]:
    """Serve requests that are due at known instants, each with its user, who sends the next one after the answer.

    Requests that are due before `until` are answered under the full load.
    """
    coming = [(at, number, user) for number, (at, user) in enumerate(due)]
    heapq.heapify(coming)
    number = len(coming)
    waiting: deque[_Request] = deque()
    running: list[_Request] = []
    requests: list[_Request] = []
    sigma = math.sqrt(math.log1p(server.jitter**2))
    now, freed = 0.0, 0
    while coming or waiting or running:
        if not waiting and not running:
            now = max(now, coming[0][0] + server.delivery)
        while coming and coming[0][0] + server.delivery <= now:
            sched, _, user = heapq.heappop(coming)
            waiting.append(_Request(sched, user, *lengths.draw(rng)))
            requests.append(waiting[-1])
        admitted = [waiting.popleft() for _ in range(min(len(waiting), server.slots - len(running) - freed))]
        receiving = admitted if admitted and server.pauses else running + admitted
        prefilled = [request.prompt for request in receiving if not request.stamps]
        cost = server.base + server.per_running * len(receiving) + server.per_prompt * len(prefilled)
        cost += server.batched if len(receiving) > 1 or prefilled else 0.0
        cost += server.per_token * sum(prefilled) + server.per_running_beyond * max(len(receiving) - server.knee, 0)
        now += cost * server.slowdown(now) * (rng.lognormvariate(-(sigma**2) / 2, sigma) if sigma else 1.0)
        for request in receiving:
            request.stamps.append(now)
        running += admitted
        ended = [request for request in running if len(request.stamps) == request.output]
        running = [request for request in running if len(request.stamps) < request.output]
        freed = len(ended) if server.late_handover and waiting else 0
        for request in ended:
            if request.user is not None:
                number += 1
                heapq.heappush(coming, (now + server.turnaround, number, request.user))
        pending = [coming[0][0]] if coming else []
        if all(sched >= until for sched in (*pending, *(request.sched for request in (*running, *waiting)))):
            break
    return requests


def write_run(
    folder: Path,
    server: BatchingServer,
    loads: Sequence[Load],
    lengths: Asked,
    seed: int = 0,
    warm_up: float = 10.0,
    window: float = 40.0,
    label: str = "scripted",
) -> Path:
    """Write a run with one stage for each load, and return its folder. Between stages the server becomes idle."""
    rng = Random(f"{label} {seed}")
    stages: list[Stage] = []
    records: list[RequestRecord] = []
    start = 0.0
    for index, load in enumerate(loads):
        begin = start
        until = warm_up + window
        shifted = replace(server, slowdown=lambda now, begin=begin: server.slowdown(begin + now))  # type: ignore[misc]
        requests = serve(shifted, _due(load, until, rng), lengths, rng, until)
        plan = StagePlan(load, Extent(warm_up), Extent(window))
        done = [request for request in requests if len(request.stamps) == request.output]
        end = max([until, *(request.stamps[-1] for request in done if request.sched < until)])
        for request in done:
            sched, *stamps = (round((begin + t) * SECOND) for t in (request.sched, *request.stamps))
            records.append(answered(len(records), index, request.user, sched, stamps, request.prompt))
        edges = (begin, begin + warm_up, begin + until, begin + end)
        stages.append(Stage(index, plan, *(round(t * SECOND) for t in edges)))
        start = begin + max(end, *(request.stamps[-1] for request in done)) + 1.0
    write_folder(folder, label, stages, records)
    return folder


def _due(load: Load, until: float, rng: Random) -> list[tuple[float, int | None]]:
    """Draw when requests are due: users start within a second; arrivals are a Poisson process."""
    if isinstance(load, Users):
        return [(rng.random(), user) for user in range(load.count)]
    instants: list[tuple[float, int | None]] = []
    at = rng.expovariate(load.per_second)
    while at < until:
        instants.append((at, None))
        at += rng.expovariate(load.per_second)
    return instants


def rates(*per_second: float) -> tuple[Load, ...]:
    return tuple(Rate(rate) for rate in per_second)


def users(*counts: int) -> tuple[Load, ...]:
    return tuple(Users(count) for count in counts)
