"""One variant in one round: started, warmed up, measured case by case, and stopped again.

The engine runs as it does when it is served: a child process on its pipe protocol, with heartbeats.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median

from enginebench.records.quality import Quality
from engines.bench.measure import Prompts, ShortAnswer, take_turn, values_of
from engines.bench.quality import measure_quality
from engines.bench.result import MEMORY
from engines.bench.settings import BenchSettings, Case, LeftOut, Variant, cases_of
from engines.contract.base import EngineInfo, Model
from engines.contract.errors import EngineError, EngineUnavailable
from engines.machine.devices import device_memory_of
from engines.process.child import ChildEngine
from engines.process.loading import load_engine

MAX_CASE = 2  # times the time for samples: a case that takes longer for one sample is left out
GAUGE_SECONDS = 2.5  # of an untimed batch, in which the engine's own gauges are read
GAUGE_INTERVAL = 0.2  # seconds between two readings
RESTART_TIMEOUT = 300.0  # seconds for an engine to come back after a crash

Tell = Callable[[str], None]


@dataclass(slots=True)
class Measured:
    """Values by the measure's name, in the order in which they were taken."""

    info: EngineInfo
    values: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    left_out: list[LeftOut] = field(default_factory=list)
    quality: Quality | None = None


async def measure_variant(
    variant: Variant, model: Model | None, settings: BenchSettings, prompts: Prompts, tell: Tell, with_quality: bool
) -> Measured:
    """Start one variant, measure its cases and stop it.

    Raises `UserMistake` and `EngineUnavailable` if it cannot be loaded or no case can be measured.
    """
    engine = load_engine(variant.engine, model, variant.options)
    began = time.monotonic()
    measured = Measured(await engine.start())
    measured.values["load"].append(time.monotonic() - began)
    try:
        loaded = await engine.stats()
        if loaded.memory_bytes is not None:
            measured.values["memory"].append(loaded.memory_bytes)
        await _Turns(engine, measured, settings, prompts, tell).run()
        if with_quality and engine.state == "ready":
            tell("quality")
            measured.quality = await measure_quality(engine, measured.info, model)
    finally:
        await engine.stop()
    return measured


class _Turns:
    """Measures all cases of a loaded engine."""

    def __init__(
        self, engine: ChildEngine, measured: Measured, settings: BenchSettings, prompts: Prompts, tell: Tell
    ) -> None:
        self._engine, self._measured, self._settings = engine, measured, settings
        self._prompts, self._tell = prompts, tell
        self._typical: dict[str, tuple[int, float]] = {}  # by kind: the last size and its seconds
        self._given_up: dict[str, str] = {}  # by kind: why larger sizes are left out
        self._taken: list[Case] = []

    async def run(self) -> None:
        cases, impossible = cases_of(self._settings, self._measured.info)
        self._measured.left_out += impossible
        for case in cases:
            why = self._given_up.get(case.kind) or self._too_long(case)
            if why is None:
                why = await self._measure(case)
            if why is not None:
                self._given_up[case.kind] = why
                self._measured.left_out.append(LeftOut(case.name, why))
            if self._engine.state != "ready":
                break
        if not self._typical and self._measured.left_out:
            raise EngineUnavailable(f"{self._measured.left_out[-1].why}.")
        await self._watch_memory()

    def _too_long(self, case: Case) -> str | None:
        """Return why the case would take too long: at least in proportion to the last smaller one."""
        if case.kind not in self._typical:
            return None
        size, seconds = self._typical[case.kind]
        expected = seconds * case.size / size if case.kind != "batch" else seconds
        if expected <= MAX_CASE * self._settings.seconds:
            return None
        return f"one would take {expected:.0f} s or more: give --seconds {expected / MAX_CASE:.0f}"

    async def _measure(self, case: Case) -> str | None:
        """Warm up and take the samples. Return why they are missing, or `None`."""
        settings, taken, values = self._settings, list[float](), defaultdict[str, list[float]](list)
        try:
            began = time.monotonic()
            for _ in range(settings.warm_up):
                await take_turn(self._engine, case, self._prompts)
                if time.monotonic() - began > settings.seconds / 2:
                    break
            deadline = time.monotonic() + settings.seconds
            while len(taken) < settings.samples_per_round and (not taken or time.monotonic() < deadline):
                answers = await take_turn(self._engine, case, self._prompts)
                taken.append(median(answer.to_last for answer in answers))
                for name, value in values_of(case, answers).items():
                    values[name].append(value)
        except (EngineError, ShortAnswer, ValueError) as error:
            with suppress(EngineUnavailable, TimeoutError):
                async with asyncio.timeout(RESTART_TIMEOUT):
                    await self._engine.until_ready()
            return str(error).rstrip(".")
        finally:
            self._measured.values |= values  # the decode of a longer generation takes the place of a shorter one's
        self._typical[case.kind] = (case.size, median(taken))
        self._taken.append(case)
        if case.kind == "prefill":  # sizes rise, so the peak so far is that of this length
            stats = await self._engine.stats()
            self._keep(f"{case.name} {MEMORY}", [stats.device_memory_peak_bytes or stats.memory_peak_bytes])
        self._tell(case.name)
        return None

    async def _watch_memory(self) -> None:
        """Read the gauges while the largest batch is repeated for some seconds, untimed."""
        if self._engine.state == "ready" and self._taken:
            largest = max(self._taken, key=lambda case: (case.requests, case.prompt_tokens + case.answer_tokens))
            device, used, kv = [], [], []
            work = asyncio.create_task(self._repeat(largest, min(GAUGE_SECONDS, self._settings.seconds)))
            while not work.done():
                await asyncio.wait([work], timeout=GAUGE_INTERVAL)
                stats = await self._engine.stats()
                device.append(stats.device_memory_peak_bytes)
                kv.append(stats.kv_cache_usage)
                used.append(device_memory_of(self._engine.pid))
            await work
            self._keep("device memory", device)
            self._keep("device memory used", used)
            self._keep("kv cache", kv)
        self._keep("memory peak", [(await self._engine.stats()).memory_peak_bytes])

    async def _repeat(self, case: Case, seconds: float) -> None:
        ends = time.monotonic() + seconds
        try:
            while time.monotonic() < ends:
                await take_turn(self._engine, case, self._prompts)
        except (EngineError, ShortAnswer) as error:
            self._measured.left_out.append(LeftOut("kv cache", str(error).rstrip(".")))

    def _keep(self, name: str, readings: list[int | None] | list[float | None]) -> None:
        values = [value for value in readings if value is not None]
        if values:
            self._measured.values[name].append(float(max(values)))
