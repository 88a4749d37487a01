"""What every registered engine must do, through its real child process."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engines.bench.quality import measure_quality
from engines.contract.base import EngineInfo, GenerateRequest, Model
from engines.contract.registry import ENGINES, engine_class, spec
from engines.process.engine_loading import load_engine
from engines.process.environments import InstalledEngine
from engines.process.stream import ReceivedChunk
from engines.process.supervisor import ChildEngine
from engines.rust.programs import PROGRAMS
from engines.text.detokenize import tokenizer_of
from tests.conftest import BackgroundLoop
from tests.support.engines import documented_engine
from tests.support.engines.lmrs_model import write_stand_in, write_tiny_llama
from tests.support.engines.rust_answers import text
from tests.support.engines.small_model import END, small_model
from tests.support.engines.ten_questions import (
    answers_of,
    assert_text_of_transformers,
    assert_those_of_transformers,
    recorded_questions,
)
from tests.support.servers.served import served

ON_A_GPU = ("cuda-graph", "compile-cuda-graph")
STATIC = ("torch-jit", "torch-compile", *ON_A_GPU)
BASELINE = "pytorch-baseline"  # which knows no other number format than 32-bit floats
EXACT = (*STATIC, "transformers", "transformers-batching", "candle", "burn", "mistralrs", "vllm")
LOADING = 1800  # seconds, for a library that is loaded on a busy machine
CANCELLING = 5  # seconds, on a machine with nothing else to do
PROMPT = "Once upon a time, in a small village near the sea, there lived"


class Loaded:
    """An engine at work, driven from plain test functions."""

    def __init__(self, name: str, background: BackgroundLoop, folder: Path, url: str = "") -> None:
        self.name = name
        self.background = background
        model, options = _what_it_needs(name, folder, url)
        self.engine: ChildEngine = load_engine(name, model, options)
        self.info: EngineInfo = background.run(self.engine.start(), LOADING)
        self.tokenizer = None if model is None else tokenizer_of(model.folder)

    def request(self, prompt: str = PROMPT, **settings) -> GenerateRequest:  # type: ignore[no-untyped-def]
        ids = range(12) if self.tokenizer is None else self.tokenizer.encode(prompt).ids
        return GenerateRequest(prompt, tuple(ids), **({"max_tokens": 12} | settings))

    async def answer(self, **settings) -> tuple[list[ReceivedChunk], str | None]:  # type: ignore[no-untyped-def]
        stream = self.engine.generate(self.request(**settings))
        chunks = [chunk async for ready in stream for chunk in ready]
        return chunks, stream.finish_reason

    def ask(self, **settings) -> tuple[str, int, str | None]:  # type: ignore[no-untyped-def]
        """Text, tokens and finish reason."""
        chunks, finish = self.background.run(self.answer(**settings))
        return text(chunks), sum(chunk.tokens for chunk in chunks), finish


def _what_it_needs(name: str, folder: Path, url: str) -> tuple[Model | None, dict[str, str]]:
    if name == "lmrs":  # a model of the one family that it supports
        return write_tiny_llama(folder), {"same_tokens": "no"}
    if name == "remote":
        return None, {"url": f"{url}/v1"}
    if not spec(name).needs_model:
        return None, {"ttft": "0.01", "tpot": "0.001"}
    exact = {"dtype": "float32"}  # in which the size of the batch changes no answer
    if name in STATIC:  # of which preparing one shape takes seconds
        return small_model(), exact | {"batches": "2", "lengths": "1024"}
    if name == "vllm":  # compiling takes a minute
        return small_model(), exact | {"eager": "yes", "kv_gib": "0.5", "context": "4096"}
    return small_model(), exact if name in EXACT else {}


def _as_parameter(name: str) -> object:
    """Engines in environments of their own, and those for a GPU, have markers: `make test` starts neither."""
    if name in ON_A_GPU:
        return pytest.param(name, marks=pytest.mark.gpu)
    own = name in ENGINES and issubclass(engine_class(name), InstalledEngine)
    return pytest.param(name, marks=pytest.mark.own_environment) if own else name


@pytest.fixture(scope="module", params=[_as_parameter(name) for name in (*ENGINES, documented_engine.NAME)])
def loaded(
    request: pytest.FixtureRequest,
    background: BackgroundLoop,
    rust_program: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Loaded]:
    name, folder = request.param, tmp_path_factory.mktemp(request.param)
    if name in PROGRAMS:
        rust_program(name)
    with contextlib.ExitStack() as open_until_the_end:
        if name == documented_engine.NAME:
            open_until_the_end.enter_context(documented_engine.installed(folder))
        elif name == "lmrs":  # a stand-in for its program
            environment = open_until_the_end.enter_context(pytest.MonkeyPatch.context())
            environment.setenv("ENGINEBENCH_LMRS", str(write_stand_in(folder)))
        elif (reason := engine_class(name).why_not_here()) is not None:
            pytest.skip(f"{name} cannot run here: {reason}")
        url = ""
        if name == "remote":
            url = open_until_the_end.enter_context(served("ttft=0.01", "tpot=0.001")).url
        one = Loaded(name, background, folder, url)
        yield one
        background.run(one.engine.stop())


def test_it_says_what_it_is(loaded: Loaded) -> None:
    info = loaded.info
    assert info.name == loaded.name
    assert info.language == engine_class(loaded.name).language
    assert info.batching == spec(loaded.name).batching
    assert info.max_concurrency >= 1
    assert info.context_length >= 1024
    assert info.version


@pytest.mark.parametrize("asked", [1, 12, 200])
def test_it_gives_exactly_the_tokens_asked_for(loaded: Loaded, asked: int) -> None:
    """Answers of random weights hold bytes that are no character."""
    text, tokens, finish = loaded.ask(max_tokens=asked)
    assert (tokens, finish) == (asked, "length")
    assert asked == 1 or len(text.split()) >= 4


def test_tokens_come_one_after_the_other(loaded: Loaded) -> None:
    chunks, _ = loaded.background.run(loaded.answer(max_tokens=12))
    assert len(chunks) >= 6, "an answer in one piece has no time to first token"


def test_a_seed_repeats_an_answer(loaded: Loaded) -> None:
    if "seed" not in loaded.info.features:
        pytest.skip(f"{loaded.name} has no seed, and says so")
    settings = {"temperature": 1.0, "seed": 7}
    assert loaded.ask(**settings)[0] == loaded.ask(**settings)[0]


def test_a_stop_string_ends_the_answer_and_is_left_out(loaded: Loaded) -> None:
    if "stop" not in loaded.info.features:
        pytest.skip(f"{loaded.name} has no stop strings, and says so")
    whole = loaded.ask()[0]
    stop = whole[len(whole) // 2 :][:4]
    text, _, finish = loaded.ask(stop=(stop,))
    assert finish == "stop"
    assert text == whole[: whole.index(stop)]


def test_a_cancelled_request_stops_and_the_next_one_is_served(loaded: Loaded) -> None:
    began = time.monotonic()
    loaded.ask(max_tokens=20)
    twenty_tokens = time.monotonic() - began

    longest = min(loaded.info.context_length, 20_000) - 100  # that no busy machine has computed before the cancel

    async def leave_early() -> tuple[str | None, float]:
        stream = loaded.engine.generate(loaded.request(max_tokens=longest))
        await anext(stream)
        left = time.monotonic()
        stream.cancel()
        await stream.stopped()
        return stream.finish_reason, time.monotonic() - left

    finish, seconds = loaded.background.run(leave_early())
    assert finish == "cancelled"
    assert seconds < max(CANCELLING, 10 * twenty_tokens), "a cancel stops an engine within a token, not at its end"
    assert loaded.ask(max_tokens=3)[1] == 3


def test_requests_in_flight_together_answer_as_if_alone(loaded: Loaded) -> None:
    alone = loaded.ask(max_tokens=8)
    together = min(4, loaded.info.max_concurrency)

    async def all_at_once() -> list[tuple[list[ReceivedChunk], str | None]]:
        return list(await asyncio.gather(*(loaded.answer(max_tokens=8) for _ in range(together))))

    for chunks, finish in loaded.background.run(all_at_once()):
        assert (text(chunks), sum(chunk.tokens for chunk in chunks), finish) == alone


def test_ten_prompts_get_the_tokens_of_transformers(loaded: Loaded) -> None:
    if loaded.name not in (*EXACT, BASELINE):
        pytest.skip(f"{loaded.name} does not compute with these weights in 32-bit floats")
    questions = recorded_questions()
    answers = loaded.background.run(answers_of(loaded.engine, loaded.info, questions))
    assert any(END in question.ids for question in questions), "it is ignored: generated as any other token"
    assert_those_of_transformers(answers, loaded.info, questions)


def test_the_end_of_text_ends_an_answer_where_it_is_not_ignored(loaded: Loaded) -> None:
    if loaded.name not in (*EXACT, BASELINE):
        pytest.skip(f"{loaded.name} does not compute with these weights in 32-bit floats")
    question = next(one for one in recorded_questions() if END in one.ids)

    async def ask() -> tuple[str, int, str | None]:
        stream = loaded.engine.generate(replace(question.request, ignore_eos=False))
        chunks = [chunk async for ready in stream for chunk in ready]
        return text(chunks), sum(chunk.tokens for chunk in chunks), stream.finish_reason

    answered, tokens, finish = loaded.background.run(ask())
    assert (tokens, finish) == (question.ids.index(END) + 1, "stop")
    assert question.answer.startswith(answered)
    assert answered


def test_the_log_probabilities_of_a_text_are_those_of_transformers(loaded: Loaded) -> None:
    if "forced" not in loaded.info.features or loaded.name not in (*EXACT, BASELINE):
        pytest.skip(f"{loaded.name} gives none of these weights in 32-bit floats")
    assert_text_of_transformers(loaded.background.run(measure_quality(loaded.engine, loaded.info, small_model())))


def test_it_reports_its_memory(loaded: Loaded) -> None:
    async def memory() -> int:
        while True:
            stats = await loaded.engine.stats()
            if stats.memory_bytes is not None:
                return stats.memory_bytes
            await asyncio.sleep(0.1)

    assert loaded.background.run(memory()) > 5_000_000
