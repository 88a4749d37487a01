"""How OpenVINO's pipeline is stepped, with a stand-in; with the library itself by `make test-installed`."""

import asyncio
import dataclasses
import sys
import threading
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from engines.contract.base import Chunk, GenerateRequest
from engines.contract.errors import EngineError, EngineUnavailable, FatalError
from engines.openvino import OpenVinoEngine, PipelineBatch, Sequence
from engines.text.answer_text import StopStrings

CACHE = 10**10  # tokens


class Handle:
    def __init__(self, tokens: int) -> None:
        self.left, self.ready, self.cancelled = tokens, [], False  # type: ignore[var-annotated]
        self.status = "RUNNING"

    def get_status(self) -> SimpleNamespace:
        return SimpleNamespace(name=self.status)

    def can_read(self) -> bool:
        return bool(self.ready)

    def read(self) -> dict[int, Any]:
        return {0: self.ready.pop(0)}

    def cancel(self) -> None:
        self.left, self.cancelled = 0, True


class Pipeline:
    """A token for every request in each step. `threads` are those that touched it."""

    def __init__(self) -> None:
        self.handles: list[Handle] = []
        self.threads: set[str] = set()
        self.breaks = False

    def add_request(self, id: int, prompt: Any, config: Any) -> Handle:
        self.threads.add(threading.current_thread().name)
        self.handles.append(Handle(config.max_new_tokens))
        return self.handles[-1]

    def has_non_finished_requests(self) -> bool:
        return any(handle.left for handle in self.handles)

    def step(self) -> None:
        self.threads.add(threading.current_thread().name)
        if self.breaks:
            raise RuntimeError("out of memory")
        for handle in self.handles:
            if handle.left > CACHE:
                handle.left, handle.status = 0, "IGNORED"
            if handle.left:
                handle.left -= 1
                reason = SimpleNamespace(name="NONE" if handle.left else "LENGTH")
                handle.ready.append(SimpleNamespace(generated_ids=[handle.left], finish_reason=reason))


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    module = ModuleType("openvino")
    module.Tensor = lambda array: array  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "openvino", module)
    return Pipeline()


class Text:
    """In place of a tokenizer's text: every token is its number."""

    def add(self, id: int) -> str:
        return str(id)

    def rest(self) -> str:
        return ""


class Stepped(OpenVinoEngine):
    """The engine around the stand-in."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def open(self) -> Any:
        self.batch = PipelineBatch(self._pipeline)

    def sequence_of(self, request: GenerateRequest) -> Sequence:
        generation = SimpleNamespace(max_new_tokens=request.max_tokens)
        return Sequence(request.prompt_token_ids, generation, Text(), StopStrings(request.stop), request.min_tokens)  # type: ignore[arg-type]


@pytest.fixture
def engine(pipeline: Pipeline) -> Iterator[Stepped]:
    engine = Stepped(pipeline)
    engine.load()
    yield engine
    engine.close()


async def answer(engine: Stepped, tokens: int, **settings: Any) -> list[Chunk]:
    return [chunk async for chunk in engine.generate(GenerateRequest("", (1, 2), tokens, **settings))]


async def test_requests_join_and_leave_between_steps_on_one_thread(pipeline: Pipeline, engine: Stepped) -> None:
    first, second = await asyncio.gather(answer(engine, 5), answer(engine, 2))
    assert [chunk.text for chunk in first] == ["4", "3", "2", "1", "0"]
    assert [chunk.finish_reason for chunk in second] == [None, "length"]
    assert await answer(engine, 1) == [Chunk("0", 1, "length")]
    assert pipeline.threads == {"steps"}


async def test_a_request_that_is_left_is_cancelled(pipeline: Pipeline, engine: Stepped) -> None:
    running = engine.generate(GenerateRequest("", (1,), 10**9))
    await anext(running)
    async with asyncio.timeout(10):
        await running.aclose()  # type: ignore[attr-defined]
    assert pipeline.handles[0].cancelled
    assert await answer(engine, 1) == [Chunk("0", 1, "length")]


async def test_a_request_that_does_not_fit_into_the_cache_fails_alone(engine: Stepped) -> None:
    async with asyncio.timeout(10):
        large, small = await asyncio.gather(answer(engine, 10**11), answer(engine, 2), return_exceptions=True)
    assert isinstance(large, EngineError)
    assert "kv_gib" in str(large)
    assert isinstance(small, list)
    assert small[-1].finish_reason == "length"


async def test_a_stop_string_ends_the_request_in_the_pipeline_too(pipeline: Pipeline, engine: Stepped) -> None:
    chunks = await answer(engine, 9, stop=("65",))
    assert ("".join(chunk.text for chunk in chunks), chunks[-1].finish_reason) == ("87", "stop")
    assert pipeline.handles[0].cancelled


async def test_stop_strings_are_looked_for_after_the_least_tokens(engine: Stepped) -> None:
    chunks = await answer(engine, 9, stop=("6", "3"), min_tokens=4)
    assert ("".join(chunk.text for chunk in chunks), chunks[-1].finish_reason) == ("87654", "stop")
    chunks = await answer(engine, 4, stop=("0",), min_tokens=4)
    assert ("".join(chunk.text for chunk in chunks), chunks[-1].finish_reason) == ("3210", "length")


def test_without_a_seed_every_request_draws_its_own_numbers(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = ModuleType("openvino_genai")
    library.GenerationConfig = SimpleNamespace  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "openvino_genai", library)
    engine = Stepped(pipeline)
    engine._context_length, engine._end_ids = 100, frozenset()
    asked = GenerateRequest("", (1, 2), 4, temperature=1.0)
    assert len({engine._generation(asked).rng_seed for _ in range(3)}) == 3
    assert engine._generation(dataclasses.replace(asked, seed=7)).rng_seed == 7


async def test_a_pipeline_that_fails_ends_every_request(pipeline: Pipeline, engine: Stepped) -> None:
    pipeline.breaks = True
    with pytest.raises(FatalError, match="OpenVINO failed: out of memory"):
        await answer(engine, 3)
    with pytest.raises(EngineUnavailable, match="OpenVINO has stopped"):
        await answer(engine, 3)
