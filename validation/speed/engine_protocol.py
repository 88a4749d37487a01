"""What an engine's process, its pipes and its lines cost per token: the Rust echo engine, which computes nothing.

    python -m validation.speed.engine_protocol --output validation/results/engine_protocol.json
    python -m validation.speed.engine_protocol paced-1 --seconds 10

    flood-1     one answer, as fast as it goes: many tokens share a write and a read
    flood-64    64 answers at once
    paced-1     one answer; each step computes for 1 ms, so each token is a write, a wake-up and a read of its own
    paced-8     8 answers; each step computes for 5 ms and gives each its token, all in one write
    requests    answers of one token, one after the other: what a request costs
    bare-pipe   no engine, no protocol: a write each millisecond, and a listener that counts. What the kernel takes for
                one process to wake another, which is in every token of paced-1, too

A token costs time twice. In the engine's process it is what a step takes longer than its computing. In this process,
which only listens, on uvloop as the server does and through the server's own `engines.process.child`, it is CPU, user
and system. With one token a write most of that is the kernel's: to wake up a process that sleeps.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
import uvloop

from engines.contract.base import GenerateRequest, Launch
from engines.process.child import ChildEngine
from engines.rust import programs as rust_programs
from validation.processes import cpu_of, machine_cpu
from validation.program import command_line, write

LIMIT = 30e-6  # seconds per token
WARM_UP = 0.5  # seconds before counting begins
ENDLESS = 10**9  # tokens: no answer ends by itself
PROMPT = "Tell me a story about a fox and a dog who live by the sea"


@dataclass(frozen=True, slots=True)
class Scenario:
    answers: int  # at a time
    tokens: int = ENDLESS  # per answer
    tpot: float = 0.0  # seconds that a step computes


BARE_PIPE = "bare-pipe"
BARE_STEP = 0.001  # seconds
BARE_WRITER = f"""
import os, time
while True:
    due = time.perf_counter() + {BARE_STEP}
    while time.perf_counter() < due:
        pass
    os.write(1, b"{"x" * 48}")
"""
SCENARIOS = {
    "flood-1": Scenario(1),
    "flood-64": Scenario(64),
    "paced-1": Scenario(1, tpot=0.001),
    "paced-8": Scenario(8, tpot=0.005),
    "requests": Scenario(1, tokens=1),
}
NAMES = [*SCENARIOS, BARE_PIPE]


@dataclass(frozen=True, slots=True)
class Result:
    """Tokens per second; everything else in seconds. Costs are per token."""

    scenario: str
    seconds: float
    tokens: float
    in_engine: float
    in_shim: float
    cores_of_others: float  # used by neither process: what disturbed the measurement
    load_average: float  # of the machine, just before

    @property
    def cost(self) -> float:
        return self.in_engine + self.in_shim


@dataclass(slots=True)
class Count:
    tokens: int = 0


async def measure(name: str, program: Path, seconds: float) -> Result:
    if name == BARE_PIPE:
        return await _bare_pipe(seconds)
    scenario, count = SCENARIOS[name], Count()
    async with echo_engine(program, scenario) as engine:
        listeners = [asyncio.create_task(listen(engine, scenario, count)) for _ in range(scenario.answers)]
        assert engine.pid is not None
        result = await _watch(name, engine.pid, count, scenario.tpot / scenario.answers, seconds)
        for listener in listeners:
            listener.cancel()
        await asyncio.gather(*listeners, return_exceptions=True)
    return result


async def _bare_pipe(seconds: float) -> Result:
    count = Count()
    ours, theirs = os.pipe()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: _Counter(count), os.fdopen(ours, "rb", buffering=0))
    writer = await asyncio.create_subprocess_exec(sys.executable, "-c", BARE_WRITER, stdout=theirs)
    os.close(theirs)
    try:
        return await _watch(BARE_PIPE, writer.pid, count, BARE_STEP, seconds)
    finally:
        writer.kill()
        await writer.wait()


class _Counter(asyncio.Protocol):
    def __init__(self, count: Count) -> None:
        self._count = count

    def data_received(self, _: bytes) -> None:
        self._count.tokens += 1


async def _watch(name: str, pid: int, count: Count, computing: float, seconds: float) -> Result:
    """`computing`: seconds per token that the other process, `pid`, spends on purpose."""
    load_average = os.getloadavg()[0]
    child, here = psutil.Process(pid), psutil.Process()
    await asyncio.sleep(WARM_UP)
    before = (time.perf_counter(), count.tokens, cpu_of(here), cpu_of(child), machine_cpu())
    await asyncio.sleep(seconds)
    after = (time.perf_counter(), count.tokens, cpu_of(here), cpu_of(child), machine_cpu())
    took, tokens, shim, spoke, machine = (later - earlier for earlier, later in zip(before, after, strict=True))
    return Result(
        scenario=name,
        seconds=took,
        tokens=tokens / took,
        in_engine=took / tokens - computing,
        in_shim=shim / tokens,
        cores_of_others=max(0.0, machine - shim - spoke) / took,
        load_average=load_average,
    )


@asynccontextmanager
async def echo_engine(program: Path, scenario: Scenario) -> AsyncIterator[ChildEngine]:
    engine = ChildEngine("echo", None, {"tpot": str(scenario.tpot)}, launch=Launch((str(program),)))
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()


async def listen(engine: ChildEngine, scenario: Scenario, count: Count) -> None:
    """Answer after answer, until cancelled."""
    request = GenerateRequest(PROMPT, (1,), scenario.tokens)
    while True:
        async for ready in engine.generate(request):
            for chunk in ready:
                count.tokens += chunk.tokens


def show(results: list[Result]) -> None:
    print(f"{'scenario':10}{'tokens/s':>11}{'in the engine µs':>18}{'in the shim µs':>16}{'both µs':>9}")
    for one in results:
        print(
            f"{one.scenario:10}{one.tokens:11.0f}{1e6 * one.in_engine:18.1f}{1e6 * one.in_shim:16.1f}"
            f"{1e6 * one.cost:9.1f}"
        )
    streamed = [one for one in results if one.scenario != BARE_PIPE and SCENARIOS[one.scenario].tokens == ENDLESS]
    if streamed:
        worst = max(streamed, key=lambda one: one.cost)
        word = "within" if worst.cost <= LIMIT else "above"
        print(f"\nA token costs {1e6 * worst.cost:.1f} µs at most ({worst.scenario}): {word} {1e6 * LIMIT:.0f} µs.")


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("scenario", nargs="*", choices=[*NAMES, []], help="all by default")
    parser.add_argument("--seconds", type=float, default=5.0, help="counted, of each scenario")
    arguments = parser.parse_args()
    program = rust_programs.build("echo")
    results = [uvloop.run(measure(name, program, arguments.seconds)) for name in arguments.scenario or NAMES]
    show(results)
    write(arguments.output, "uvloop", "msgspec", results=[asdict(result) for result in results])


if __name__ == "__main__":
    main()
