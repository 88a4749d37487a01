"""One model that every engine runs: with the same weights, ten prompts get the tokens of Transformers from each.

One prompt after the other first, where a cache or a frozen constant that is kept from the first request shows, then as
many at once as the engine takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from engines.contract.base import EngineInfo, GenerateRequest, Model
from engines.contract.registry import engine_class, load_engine
from engines.models.fetch import fetch_model
from engines.models.random.weights import with_weights
from engines.process.child import ChildEngine
from engines.rust.programs import PROGRAMS
from servers.openai.prompts import load_tokenizer
from tests.conftest import BackgroundLoop
from tests.support.engines.reference import Reference

pytestmark = pytest.mark.xdist_group("rust")

QUESTIONS = (
    "Where does the river that passes the mill come from?",
    "Hello",
    "Name three planets and say which of them is the largest.",
    "How many days has February in a leap year?",
    "Write a short poem about the sea.",
    "What is 17 times 23?",
    "Why is the sky blue?",
    "Translate into German: the quick brown fox jumps over the lazy dog.",
    "List the vowels of the alphabet, one per line, and then count the consonants that follow each of them.",
    "Who wrote this?",
)
TOKENS = 12
LOADING = 1800  # seconds, for a library that is loaded on a busy machine
FEW_SHAPES = {"dtype": "float32", "batches": "1,4", "lengths": "1024"}  # of which preparing one takes seconds
VLLM = {"dtype": "float32", "eager": "yes", "kv_gib": "0.5", "context": "4096"}  # compiling takes a minute
OWN = pytest.mark.own_environment


@dataclass(frozen=True)
class Question:
    """`answer` is that of Transformers, with the log-probability of each token."""

    request: GenerateRequest
    answer: str
    logprobs: tuple[float, ...]


@dataclass(frozen=True)
class Answers:
    """`alone` and `together` are in the order of the questions."""

    info: EngineInfo
    alone: list[str]
    together: list[str]
    logprobs: list[list[float]]  # of those that were asked alone


@pytest.fixture(scope="module")
def model() -> Model:
    """Llama 3.2 in small: its rotary scaling, grouped heads, tied embeddings and vocabulary. The same file for all."""
    return with_weights(fetch_model("random:llama-3.2-tiny"))


@pytest.fixture(scope="module")
def questions(model: Model) -> list[Question]:
    """In the chat template, because lm.rs reads no other prompts."""
    tokenizer, reference = load_tokenizer(model), Reference.of(model.folder)
    made = []
    for asked in QUESTIONS:
        text = tokenizer.render([{"role": "user", "content": asked}])
        ids = tuple(tokenizer.encode(text, special=False, limit=4096))
        answer, logprobs = reference.answer(ids, TOKENS)
        assert len(set(answer)) > TOKENS / 2, "an answer that repeats itself would compare nothing"
        request = GenerateRequest(text, ids, TOKENS, ignore_eos=True)
        made.append(Question(request, tokenizer.decode(answer), tuple(logprobs)))
    return made


async def asked(engine: ChildEngine, request: GenerateRequest) -> tuple[str, list[float]]:
    chunks = [chunk async for ready in engine.generate(request) for chunk in ready]
    return "".join(chunk.text for chunk in chunks), [one.logprob for chunk in chunks for one in chunk.logprobs]


async def answers_of(name: str, model: Model, options: dict[str, str], questions: list[Question]) -> Answers:
    engine = load_engine(name, model, options)
    info = await engine.start()
    at_once = asyncio.Semaphore(info.max_concurrency)

    async def in_turn(question: Question) -> str:
        async with at_once:
            return (await asked(engine, question.request))[0]

    logprobs = 1 if "logprobs" in info.features else None
    try:
        alone = [await asked(engine, replace(question.request, logprobs=logprobs)) for question in questions]
        together = list(await asyncio.gather(*map(in_turn, questions))) if info.max_concurrency > 1 else []
    finally:
        await engine.stop()
    return Answers(info, [text for text, _ in alone], together, [logs for _, logs in alone])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        pytest.param("transformers", {"dtype": "float32"}, id="transformers"),
        pytest.param("transformers", {"dtype": "float32", "draft": "ngram"}, id="transformers, assisted"),
        pytest.param("transformers-batching", {"dtype": "float32"}, id="transformers-batching"),
        pytest.param("pytorch-baseline", {}, id="pytorch-baseline"),
        pytest.param("torch-jit", FEW_SHAPES, id="torch-jit"),
        pytest.param("torch-compile", FEW_SHAPES, id="torch-compile"),
        pytest.param("cuda-graph", FEW_SHAPES, id="cuda-graph", marks=pytest.mark.gpu),
        pytest.param("compile-cuda-graph", FEW_SHAPES, id="compile-cuda-graph", marks=pytest.mark.gpu),
        pytest.param("candle", {"dtype": "float32"}, id="candle-transformers"),
        pytest.param("candle", {"dtype": "float32", "concurrency": "4"}, id="candle, in a batch"),
        pytest.param("burn", {"dtype": "float32"}, id="burn"),
        pytest.param("mistralrs", {"dtype": "float32"}, id="mistralrs"),
        pytest.param("vllm", VLLM, id="vllm", marks=OWN),
        pytest.param("vllm", VLLM | {"speculative_tokens": "3"}, id="vllm, guessing", marks=OWN),
        pytest.param("lmrs", {"dtype": "float32"}, id="lmrs", marks=pytest.mark.lmrs),
    ],
)
def test_ten_prompts_get_the_tokens_of_transformers(
    name: str,
    options: dict[str, str],
    model: Model,
    questions: list[Question],
    background: BackgroundLoop,
    rust_program: Callable[[str], Path],
) -> None:
    if name in PROGRAMS:
        rust_program(name)
    answers = background.run(answers_of(name, model, options, questions), LOADING)
    expected = [question.answer.lstrip() for question in questions]  # mistral.rs drops a space at the beginning
    assert [text.lstrip() for text in answers.alone] == expected
    assert [text.lstrip() for text in answers.together] == (expected if answers.info.max_concurrency > 1 else [])
    if "logprobs" in answers.info.features:
        for logprobs, question in zip(answers.logprobs, questions, strict=True):
            assert logprobs == pytest.approx(question.logprobs, abs=1e-4)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        pytest.param("openvino", {}, id="openvino, which keeps keys and values in 8 bits", marks=OWN),
        pytest.param("llamacpp", {"dtype": "float32"}, id="llamacpp, which keeps them in 16", marks=OWN),
    ],
)
def test_an_engine_that_rounds_begins_most_answers_alike(
    name: str, options: dict[str, str], model: Model, questions: list[Question], background: BackgroundLoop
) -> None:
    if (reason := engine_class(name).why_not_here()) is not None:
        pytest.skip(f"{name} cannot run here: {reason}")
    answers = background.run(answers_of(name, model, options, questions), LOADING)
    for texts in (answers.alone, answers.together):
        begun = [question.answer[: len(question.answer) // 4] for question in questions]
        alike = sum(text.startswith(beginning) for text, beginning in zip(texts, begun, strict=True))
        print(f"{name}: {alike} of {len(begun)} answers begin alike")
        assert alike > len(begun) / 2, "an error in its cache or weights leaves none"
