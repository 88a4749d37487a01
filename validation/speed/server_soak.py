"""A soak test of the server: good, bad, slow and disconnecting clients for half an hour, and an occasional `kill -9`.

    python -m validation.speed.server_soak                                  # 30 minutes, a table and a verdict
    python -m validation.speed.server_soak --seconds 60 --rate 25 --output soak.json

Clients arrive at random, `--rate` per second, at times more than there are slots; `soak_clients.py` describes them.
Every client reports how its requests ended. At the end:

    memory     the server's minimum resident memory in the last fifth of the run is at most 5 % above the second fifth
    slots      no request runs or waits, and all slots can be taken at the same time
    leaks      as many file descriptors, asyncio tasks and threads as before, one child process
    outcomes   every request is in `enginebench_requests_total` once, and under the outcome that its client saw

    The exit code is 1 if one of these checks fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

import psutil
from prometheus_client.parser import text_string_to_metric_families

from validation.processes import cpu_of, http_request, started_server
from validation.program import command_line, write
from validation.speed.soak_clients import CLIENTS, PATHS, Report, Visit
from validation.speed.soak_server import CONCURRENCY

SERVER = "validation.speed.soak_server"
GROWTH = 1.05  # maximum ratio of memory, last fifth to second fifth
MARGIN = 1.0  # seconds around a kill in which it may have ended a request
TOO_SOON = 0.1  # seconds; a client that disconnects earlier may be refused at the same moment
SETTLE = 20.0  # seconds after which the server must be idle

POOL_THREADS = min(32, (os.cpu_count() or 1) + 4)  # maximum for the event loop, which keeps every thread that it starts

Outcomes = dict[str, int]  # "chat ok" -> 12


@dataclass(frozen=True, slots=True)
class Resources:
    """Resources of an idle server."""

    descriptors: int
    tasks: int
    threads: int
    children: int


@dataclass(slots=True)
class Soak:
    """The results: durations in seconds, memory in bytes, CPU as a share of one core."""

    seconds: float
    rate: float
    requests: int
    kills: int
    restarts: int
    seen: Outcomes  # by the clients
    counted: Outcomes  # by the server
    uncertain: int  # requests that client and engine may have ended at the same moment
    peak_running: int
    peak_waiting: int
    all_slots: int  # slots that could be taken at the same time at the end
    left_running: int
    left_waiting: int
    before: Resources
    after: Resources
    memory_before: float
    memory_after: float
    cpu: dict[str, float] = field(default_factory=dict)

    def faults(self) -> list[str]:
        """Return a sentence for each failed check; none after a good run."""
        sentences = []
        if self.memory_after > GROWTH * self.memory_before:
            sentences.append(f"memory grew by {self.memory_after / self.memory_before - 1:.1%}.")
        if self.left_running or self.left_waiting:
            sentences.append(f"{self.left_running} requests still run and {self.left_waiting} wait without a client.")
        if self.all_slots != CONCURRENCY:
            sentences.append(f"only {self.all_slots} of {CONCURRENCY} slots can be taken.")
        same = replace(self.after, threads=0) == replace(self.before, threads=0)
        if not same or self.after.threads > self.before.threads + POOL_THREADS:
            sentences.append(f"resources changed from {self.before} to {self.after}.")
        if self.restarts != self.kills:
            sentences.append(f"the engine was killed {self.kills} times and restarted {self.restarts} times.")
        if sum(self.counted.values()) != self.requests:
            sentences.append(f"{self.requests} requests were made and {sum(self.counted.values())} counted.")
        for name in sorted({*self.seen, *self.counted}):
            seen, counted = self.seen.get(name, 0), self.counted.get(name, 0)
            if not seen <= counted <= seen + self.uncertain:
                sentences.append(f"`{name}`: clients saw {seen}, the server counted {counted}.")
        return sentences


class Watched:
    """The server under test."""

    def __init__(self, process: psutil.Process, port: int) -> None:
        self.process = process
        self.port = port

    async def engine(self) -> psutil.Process:
        """Return the engine's process, once it has been started (again)."""
        while True:
            for child in self.process.children():  # the guard of its process group is another child
                with contextlib.suppress(psutil.Error):  # it has just ended
                    if "engines.process.worker" in child.cmdline():
                        return child
            await asyncio.sleep(0.05)

    async def get(self, path: str) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(http_request(path))
        answer = await reader.read()
        writer.close()
        return answer.partition(b"\r\n\r\n")[2].decode()

    async def metrics(self) -> dict[str, float]:
        """Return the metrics by name; `requests_total` by name, endpoint and outcome."""
        values = {}
        for family in text_string_to_metric_families(await self.get("/metrics")):
            for name, labels, value, *_ in family.samples:
                parts = [labels[label] for label in ("endpoint", "outcome") if label in labels]
                values[" ".join([name.removeprefix("enginebench_"), *parts])] = value
        return values

    async def outcomes(self) -> Outcomes:
        counted = {name: int(value) for name, value in (await self.metrics()).items()}
        prefix = "requests_total "
        return {
            name.removeprefix(prefix): count for name, count in counted.items() if name.startswith(prefix) and count
        }

    async def at_work(self) -> tuple[int, int]:
        """Return the numbers of running and of waiting requests."""
        now = await self.metrics()
        return int(now["requests_running"]), int(now["requests_waiting"])

    async def resources(self) -> Resources:
        """Return the resources, once the server has noticed all disconnects."""
        await asyncio.sleep(1.5)
        tasks = int(await self.get("/tasks"))
        return Resources(self.process.num_fds(), tasks, self.process.num_threads(), len(self.process.children()))


@contextlib.contextmanager
def server() -> Iterator[Watched]:
    with started_server([sys.executable, "-m", SERVER]) as (process, port):
        yield Watched(process, port)


class SoakRun:
    """Arrivals, kills and samples at the same time, then the checks."""

    def __init__(self, watched: Watched, seconds: float, rate: float, kill_every: float) -> None:
        self._watched = watched
        self._seconds, self._rate, self._kill_every = seconds, rate, kill_every
        self._chance = random.Random(1)
        self._reports: list[Report] = []
        self._kills: list[float] = []
        self._memory: list[float] = []
        self._peak = [0, 0]

    async def run(self) -> Soak:
        watched = self._watched
        await self._one_of_each()
        before, cpu = await watched.resources(), self._cpu()
        began = time.monotonic()
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self._arrivals(began + self._seconds))
            parts.create_task(self._killing(began + self._seconds))
            parts.create_task(self._sampling(began + self._seconds))
        took = time.monotonic() - began
        cpu = {name: (used - cpu[name]) / took for name, used in self._cpu().items()}
        await self._quiet()
        slots = await self._take_all_slots()
        running, waiting = await self._quiet()
        certain = [report for report in self._reports if self._certain(report)]
        return Soak(
            seconds=took,
            rate=self._rate,
            requests=len(self._reports),
            kills=len(self._kills),
            restarts=int((await watched.metrics())["engine_restarts_total"]),
            seen=dict(Counter(f"{report.endpoint} {report.outcome}" for report in certain)),
            counted=await watched.outcomes(),
            uncertain=len(self._reports) - len(certain),
            peak_running=self._peak[0],
            peak_waiting=self._peak[1],
            all_slots=slots,
            left_running=running,
            left_waiting=waiting,
            before=before,
            after=await watched.resources(),
            memory_before=_least(self._memory, fifth=1),
            memory_after=_least(self._memory, fifth=4),
            cpu=cpu,
        )

    def _visit(self) -> Visit:
        return Visit(self._watched.port, random.Random(self._chance.getrandbits(64)), self._reports.append)

    async def _one_of_each(self) -> None:
        """Run one client of every kind, so that lazy initialisation precedes the measurement."""
        async with asyncio.TaskGroup() as clients:
            for client in CLIENTS:
                clients.create_task(client(self._visit()))

    async def _arrivals(self, until: float) -> None:
        kinds, weights = list(CLIENTS), list(CLIENTS.values())
        due = time.monotonic()
        async with asyncio.TaskGroup() as clients:
            while (due := due + self._chance.expovariate(self._rate)) < until:
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                (client,) = self._chance.choices(kinds, weights)
                clients.create_task(client(self._visit()))

    async def _killing(self, until: float) -> None:
        while time.monotonic() + self._kill_every < until:
            await asyncio.sleep(self._kill_every)
            engine = await self._watched.engine()
            self._kills.append(time.monotonic())
            engine.kill()

    async def _sampling(self, until: float) -> None:
        while time.monotonic() < until:
            self._memory.append(self._watched.process.memory_info().rss)
            now = await self._watched.at_work()
            self._peak = [max(pair) for pair in zip(self._peak, now, strict=True)]
            await asyncio.sleep(min(1.0, self._seconds / 100))

    async def _quiet(self) -> tuple[int, int]:
        """Return running and waiting requests, once the last client has disconnected and the engine is ready."""
        deadline = time.monotonic() + SETTLE
        while time.monotonic() < deadline:
            ready = '"status":"ready"' in await self._watched.get("/ready")
            if ready and await self._watched.at_work() == (0, 0):
                break
            await asyncio.sleep(0.05)
        return await self._watched.at_work()

    async def _take_all_slots(self) -> int:
        """Send one request more than there are slots. Return how many run at the same time."""
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(CONCURRENCY + 1):
                visit = self._visit()
                line = await stack.enter_async_context(visit.connect())
                await stack.enter_async_context(visit.report("chat", line))
                line.send(visit.body("chat", 50_000, stream=True), PATHS["chat"])
            await asyncio.sleep(TOO_SOON)
            deadline = time.monotonic() + SETTLE
            while (now := await self._watched.at_work()) != (CONCURRENCY, 1) and time.monotonic() < deadline:
                await asyncio.sleep(0.05)
            return now[0]

    def _certain(self, report: Report) -> bool:
        if report.seen:
            return True
        near = any(report.began - MARGIN < kill < report.ended + MARGIN for kill in self._kills)
        return not near and report.ended - report.began > TOO_SOON

    def _cpu(self) -> Mapping[str, float]:
        return {"server": cpu_of(self._watched.process), "clients": cpu_of(psutil.Process())}


def _least(samples: Sequence[float], fifth: int) -> float:
    """Return the minimum of one fifth of the run, counted from 0: requests in flight add up to 10 % to the memory, and
    a leak raises the minimum as well."""
    size = max(1, len(samples) // 5)
    return min(samples[fifth * size : (fifth + 1) * size])


def soak(seconds: float, rate: float, kill_every: float) -> Soak:
    """Run the test with `rate` clients a second; the engine is killed every `kill_every` seconds."""
    with server() as watched:
        return asyncio.run(SoakRun(watched, seconds, rate, kill_every).run())


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--seconds", type=float, default=1_800)
    parser.add_argument("--rate", type=float, default=8, help="clients a second")
    parser.add_argument("--kill-every", type=float, default=75, help="seconds between two kills of the engine")
    arguments = parser.parse_args()
    result = soak(arguments.seconds, arguments.rate, arguments.kill_every)
    faults = result.faults()
    _print(result, faults)
    write(arguments.output, **asdict(result), faults=faults)
    sys.exit(1 if faults else 0)


def _print(result: Soak, faults: list[str]) -> None:
    print(f"{'outcome':28}{'clients saw':>12}{'server counted':>16}")
    for name in sorted({*result.seen, *result.counted}):
        print(f"{name:28}{result.seen.get(name, 0):12}{result.counted.get(name, 0):16}")
    before, after = (value / 1024**2 for value in (result.memory_before, result.memory_after))
    print(f"CPU of one core: server {result.cpu['server']:.1%}, clients {result.cpu['clients']:.1%}")
    print(f"memory {before:.1f} → {after:.1f} MiB; {result.before} → {result.after}")
    print(f"{result.requests} requests in {result.seconds:.0f} s, {result.kills} kills, ", end="")
    print(f"{result.uncertain} uncertain: ", end="")
    print(" ".join(faults) if faults else "no leak, all slots free, every request counted once.")


if __name__ == "__main__":
    main()
