"""`enginebench bench --profile`: after all rounds, each engine answers one request at a time under a profiler."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from engines.bench.measure import Prompts, ShortAnswer, take_turn
from engines.bench.settings import BenchSettings, Case, Variant
from engines.contract.base import Launch, Model
from engines.contract.errors import EngineError, EngineUnavailable
from engines.process.child import ChildEngine, Watch
from engines.process.loading import load_engine
from loadtests.harness.profiler import SECONDS, ProfileFailed, Profiler

SETTLE = 2  # turns before the profiler starts
TOKENS = 64  # of an answer


async def profile_all(
    profiler: Profiler,
    variants: Sequence[Variant],
    models: Mapping[str | None, Model | None],
    settings: BenchSettings,
    folder: Path,
) -> tuple[list[Path], list[str]]:
    """Return the folders with the profiler's files, one for each variant in `folder`, and a sentence for each that
    could not be profiled."""
    case = Case("generate", TOKENS, 1, settings.prompt_tokens, TOKENS)
    made, failures = [], []
    for variant in variants:
        name = "".join(letter if letter.isalnum() or letter in "-_.=" else "_" for letter in variant.label)
        output = profiler.output(folder / name)
        try:
            await _profile(profiler, variant, models[variant.model], case, output)
            made.append(output.parent)
        except (EngineError, EngineUnavailable, ShortAnswer, ProfileFailed) as error:
            failures.append(f"{variant.label} is not profiled: {error}")
    return made, failures


async def _profile(profiler: Profiler, variant: Variant, model: Model | None, case: Case, output: Path) -> None:
    def started(launch: Launch) -> Launch:
        return replace(launch, prefix=profiler.prefix(output))

    engine = load_engine(variant.engine, model, variant.options, Watch(), started)
    prompts = Prompts(model, "profile")
    try:
        await engine.start()
        for _ in range(SETTLE):
            await take_turn(engine, case, prompts)
        work = asyncio.create_task(_repeat(engine, case, prompts))
        try:
            if profiler.prefix(output) or engine.pid is None:
                await asyncio.sleep(SECONDS)
            else:
                await asyncio.to_thread(profiler.attach, engine.pid, output)
        finally:
            work.cancel()
            with suppress(asyncio.CancelledError):
                await work
    finally:
        await engine.stop()


async def _repeat(engine: ChildEngine, case: Case, prompts: Prompts) -> None:
    while True:
        await take_turn(engine, case, prompts)
