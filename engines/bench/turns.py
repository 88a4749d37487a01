"""One variant in one round: started, warmed up, measured case by case, and stopped again.

The engine runs as it does when it is served: a child process on its pipe protocol, with heartbeats.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median

from enginebench.records.quality import Quality
from engines.bench.measure import Key, Prompts, take_turn, values_of
from engines.bench.quality import measure_quality
from engines.bench.settings import BenchSettings, Case, Variant, cases_of
from engines.contract.base import EngineInfo, Model
from engines.contract.errors import EngineError, EngineUnavailable
from engines.process.engine_loading import load_engine
from engines.process.supervisor import ChildEngine

MAX_CASE = 2  # multiple of the time for samples: a case is left out if one sample takes longer
RESTART_TIMEOUT = 300.0  # seconds for an engine to come back after a crash

Tell = Callable[[str], None]


@dataclass(slots=True)
class Turn:
    """A variant in one round: its samples in the order in which they were taken, and why cases are missing."""

    info: EngineInfo
    samples: dict[Key, list[float]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    quality: Quality | None = None

    def keep(self, key: Key, value: float | None) -> None:
        if value is not None:
            self.samples[key] = [float(value)]


async def measure_variant(
    variant: Variant, model: Model | None, settings: BenchSettings, prompts: Prompts, tell: Tell, with_quality: bool
) -> Turn:
    """Start one variant, measure its cases and stop it.

    Raises `UserMistake` and `EngineUnavailable` if it cannot be loaded or no case can be measured.
    """
    engine = load_engine(variant.engine, model, variant.options)
    began = time.monotonic()
    turn = Turn(await engine.start())
    turn.samples["load", None] = [time.monotonic() - began]
    try:
        turn.keep(("memory", None), (await engine.stats()).memory_bytes)
        await _Cases(engine, turn, settings, prompts, tell).run()
        if with_quality and engine.state == "ready":
            tell("quality")
            turn.quality = await measure_quality(engine, turn.info, model)
    finally:
        await engine.stop()
    return turn


class _Cases:
    """Measure all cases of a loaded engine."""

    def __init__(self, engine: ChildEngine, turn: Turn, settings: BenchSettings, prompts: Prompts, tell: Tell) -> None:
        self._engine, self._turn, self._settings = engine, turn, settings
        self._prompts, self._tell = prompts, tell
        self._typical: dict[str, tuple[int, float]] = {}  # by kind: the last size and its seconds
        self._given_up: dict[str, str] = {}  # by kind: why larger sizes are left out

    async def run(self) -> None:
        cases, self._turn.left_out = cases_of(self._settings, self._turn.info)
        for number, case in enumerate(cases):
            why = self._given_up.get(case.kind) or self._too_long(case)
            if why is None:
                why = await self._measure(case)
            if why is not None:
                self._given_up[case.kind] = why
                self._turn.left_out[case.name] = why
            if self._engine.state != "ready":
                gone = f"the engine did not come back after {case.name}"
                self._turn.left_out |= {later.name: gone for later in cases[number + 1 :]}
                break
        if not self._typical and self._turn.left_out:
            reasons = list(self._given_up.values()) or list(self._turn.left_out.values())
            raise EngineUnavailable(f"{reasons[-1]}.")
        stats = await self._engine.stats()
        self._turn.keep(("memory peak", None), stats.memory_peak_bytes)
        self._turn.keep(("device memory", None), stats.device_memory_peak_bytes)

    def _too_long(self, case: Case) -> str | None:
        """Return why the case would take too long, estimated in proportion to the last smaller one."""
        if case.kind not in self._typical:
            return None
        size, seconds = self._typical[case.kind]
        expected = seconds * case.size / size if case.kind != "batch" else seconds
        if expected <= MAX_CASE * self._settings.seconds:
            return None
        return f"it would take {expected:.1f} s or more: give --seconds {math.ceil(expected / MAX_CASE)}"

    async def _measure(self, case: Case) -> str | None:
        """Warm up and take the samples. Return why they are missing, or `None`."""
        settings, taken, samples = self._settings, list[float](), defaultdict[Key, list[float]](list)
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
                for key, value in values_of(case, answers):
                    samples[key].append(value)
        except (EngineError, ValueError) as error:
            with suppress(EngineUnavailable, TimeoutError):
                async with asyncio.timeout(RESTART_TIMEOUT):
                    await self._engine.until_ready()
            return str(error).rstrip(".")
        finally:
            self._turn.samples |= samples  # the decode of a longer generation replaces that of a shorter one
        self._typical[case.kind] = (case.size, median(taken))
        if case.kind == "prefill":  # sizes rise, so the peak so far belongs to this length
            stats = await self._engine.stats()
            peak = stats.device_memory_peak_bytes or stats.memory_peak_bytes
            self._turn.keep(("prefill memory", case.size), peak)
        self._tell(case.name)
        return None
