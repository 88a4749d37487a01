"""`enginebench bench --profile KIND`: each engine once more, after all rounds, with a profiler. No sample is taken."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from enginebench.records.profile import Profile, write_profiles
from enginebench.settings.profile import ProfileSettings
from enginebench.settings.schema import UserMistake
from engines.bench.document import BenchResult
from engines.bench.measure import Prompts, ShortAnswer, take_turn
from engines.bench.settings import BenchSettings, Case, Variant
from engines.contract.base import Launch, Model
from engines.contract.errors import EngineError, EngineUnavailable
from engines.contract.registry import engine_class
from engines.process.child import ChildEngine, Watch
from engines.process.loading import load_engine
from engines.pytorch.device import OnTorch
from loadtests.harness.profiling.profilers import Profiler, profiler
from loadtests.harness.profiling.recording import Recording

SETTLE = 2  # turns before the profile begins
TOKENS = 64  # of an answer, at most


def profiler_for(settings: ProfileSettings, variants: Sequence[Variant]) -> Profiler | None:
    """The chosen one, which suits each engine. Raises `UserMistake`."""
    if settings.profile is None:
        return None
    found = profiler(settings.profile)
    for one in variants:
        kind = engine_class(one.engine)
        if (unfit := found.unfit(one.engine, kind.language, issubclass(kind, OnTorch))) is not None:
            raise UserMistake(unfit)
    return found


def folder_of(output: Path | None, label: str) -> Path:
    """Beside the document: `bench.profiles/candle`."""
    parent = (output or Path("bench.json")).with_suffix(".profiles")
    return parent / "".join(letter if letter.isalnum() or letter in "-_.=" else "_" for letter in label)


async def profile_all(
    chosen: Profiler,
    seconds: float,
    variants: Sequence[Variant],
    models: Mapping[str | None, Model | None],
    settings: BenchSettings,
    measured: BenchResult,
    output: Path | None,
) -> tuple[Profile, ...]:
    """Of what could be measured."""
    labels = {one.label for one in measured.measured}
    found = []
    for variant in variants:
        if variant.label in labels:
            folder = folder_of(output, variant.label)
            case = Case("generate", TOKENS, 1, settings.prompt_tokens, TOKENS)
            load = f"one request at a time of {case.prompt_tokens} + {case.answer_tokens} tokens"
            recording = Recording(chosen, folder, variant.label, "engine", load, min(seconds, chosen.longest))
            recording.stem.parent.mkdir(parents=True, exist_ok=True)
            found.append(await _profile(recording, variant, models[variant.model], case))
            write_profiles(folder, found[-1:])
    return tuple(found)


async def _profile(recording: Recording, variant: Variant, model: Model | None, case: Case) -> Profile:
    def prefixed(launch: Launch) -> Launch:
        return replace(launch, prefix=recording.prefix)

    engine = load_engine(variant.engine, model, variant.options, Watch(), prefixed)
    prompts = Prompts(model, "profile")
    try:
        await engine.start()
        for _ in range(SETTLE):
            await take_turn(engine, case, prompts)
        work = asyncio.create_task(_repeat(engine, case, prompts))
        try:
            await _record(recording, engine)
        finally:
            work.cancel()
            with suppress(asyncio.CancelledError, EngineError, ShortAnswer):
                await work
    except (EngineError, EngineUnavailable, ShortAnswer) as error:
        recording.why = str(error)
    finally:
        await engine.stop()
    return recording.read()


async def _repeat(engine: ChildEngine, case: Case, prompts: Prompts) -> None:
    while True:
        await take_turn(engine, case, prompts)


async def _record(recording: Recording, engine: ChildEngine) -> None:
    chosen = recording.profiler
    if chosen.inside:
        await engine.profile(chosen.name, recording.stem, on=True)
        await asyncio.sleep(recording.seconds)
        await engine.profile(chosen.name, recording.stem, on=False)
    elif chosen.attach is None:
        await asyncio.sleep(recording.seconds)
    elif engine.pid is not None:
        await asyncio.to_thread(recording.attach, engine.pid)
