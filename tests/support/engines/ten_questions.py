"""Ten prompts for the small model that every engine runs, and the answers of Transformers with the same weights.

Eight are chats, and two are completions of plain text. One answer has the model's end-of-text token in the middle,
which is generated like any other token.

The answers are recorded, so that engines can be tested without torch: python -m tests.support.engines.ten_questions
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest

from enginebench.records.quality import TEXT, Quality
from engines.contract.base import EngineInfo, GenerateRequest, Model
from engines.process.supervisor import ChildEngine
from engines.text.detokenize import tokenizer_of
from servers.openai.prompts import load_tokenizer
from tests.support.engines.reference import Reference
from tests.support.engines.small_model import small_model
from tests.support.engines.torch_when_used import torch

QUESTIONS = (
    "Where does the river that passes the mill come from?",
    "Hello",
    "What do cats eat?",
    "How many days has February in a leap year?",
    "Write a short poem about the sea.",
    "Why is the sky blue?",
    "Translate into German: the quick brown fox jumps over the lazy dog.",
    "List the vowels of the alphabet, one per line, and then count the consonants that follow each of them.",
)
COMPLETIONS = ("Once upon a time there was", "The capital of France is")
TOKENS = 12
DATA = Path(__file__).parents[2] / "data"
RECORDED, RECORDED_TEXT = DATA / "ten-answers.json", DATA / "text-logprobs.json"


@dataclass(frozen=True)
class Question:
    """`answer` is that of Transformers, with the id and the log-probability of each token."""

    request: GenerateRequest
    ids: tuple[int, ...]
    answer: str
    logprobs: tuple[float, ...]


@dataclass(frozen=True)
class Answers:
    """`alone` and `together` are in the order of the questions."""

    alone: list[str]
    together: list[str]
    logprobs: list[list[float]]  # of the answers in `alone`


@cache
def recorded_questions() -> tuple[Question, ...]:
    """Return the questions to the small model. A test in tests/engines/test_transformers.py asks Transformers again."""
    return _questions(small_model(), json.loads(RECORDED.read_text()))


def questions_of(model: Model) -> tuple[Question, ...]:
    """Return the questions to any model. Imports torch, and asks Transformers."""
    reference = Reference.of(model.folder)
    return _questions(model, [reference.answer(ids, TOKENS) for _, ids in _prompts(model)])


def text_logprobs(model: Model) -> list[tuple[float, float]]:
    """Return the log-probabilities of each token of `TEXT` from the second on, and of the likeliest one in its place,
    as Transformers computes them from the whole text at once."""
    ids = tokenizer_of(model.folder).encode(TEXT).ids
    logs = torch.log_softmax(Reference.of(model.folder).logits(ids)[:-1].double(), -1)
    return list(zip(logs[range(len(ids) - 1), ids[1:]].tolist(), logs.max(-1).values.tolist(), strict=True))


@cache
def recorded_text() -> list[list[float]]:
    return json.loads(RECORDED_TEXT.read_text())  # type: ignore[no-any-return]


def assert_text_of_transformers(quality: Quality) -> None:
    tokens, likeliest = zip(*recorded_text(), strict=True)
    assert quality.why is None
    assert quality.logprobs == pytest.approx(tokens, abs=1e-4)
    # All parts of characters have the same text, so only the last of them is kept under it.
    whole = [k for k, top in enumerate(quality.top) if not any("\ufffd" in text for text in top)]
    assert len(whole) > 0.95 * len(tokens)
    assert [max(quality.top[k].values()) for k in whole] == pytest.approx([likeliest[k] for k in whole], abs=5e-4)
    assert TEXT.endswith("".join(quality.tokens))


def _prompts(model: Model) -> list[tuple[str, tuple[int, ...]]]:
    """Return questions in the model's chat template, and completions unchanged."""
    tokenizer = load_tokenizer(model)
    chats = [tokenizer.render([{"role": "user", "content": asked}]) for asked in QUESTIONS]
    texts = [*chats, *COMPLETIONS]
    return [(text, tuple(tokenizer.encode(text, special=False, limit=4096))) for text in texts]


def _questions(model: Model, answers: Sequence[tuple[list[int], list[float]]]) -> tuple[Question, ...]:
    tokenizer, made = tokenizer_of(model.folder), []
    for (text, ids), (answer, logprobs) in zip(_prompts(model), answers, strict=True):
        assert len(set(answer)) > TOKENS / 2, "an answer that repeats itself would compare nothing"
        request = GenerateRequest(text, ids, TOKENS, ignore_eos=True)
        made.append(Question(request, tuple(answer), tokenizer.decode(answer), tuple(logprobs)))
    return tuple(made)


async def answers_of(engine: ChildEngine, info: EngineInfo, questions: Sequence[Question]) -> Answers:
    """Ask the questions one after the other, which shows a cache or a constant that is kept from the first request;
    then ask as many at the same time as the engine runs."""
    at_once = asyncio.Semaphore(info.max_concurrency)

    async def in_turn(question: Question) -> str:
        async with at_once:
            return (await _asked(engine, question.request))[0]

    logprobs = 1 if "logprobs" in info.features else None
    alone = [await _asked(engine, replace(question.request, logprobs=logprobs)) for question in questions]
    together = list(await asyncio.gather(*map(in_turn, questions))) if info.max_concurrency > 1 else []
    return Answers([text for text, _ in alone], together, [logs for _, logs in alone])


async def _asked(engine: ChildEngine, request: GenerateRequest) -> tuple[str, list[float]]:
    chunks = [chunk async for ready in engine.generate(request) for chunk in ready]
    return "".join(chunk.text for chunk in chunks), [one.logprob for chunk in chunks for one in chunk.logprobs]


def assert_those_of_transformers(
    answers: Answers, info: EngineInfo, questions: Sequence[Question], within: float = 1e-4
) -> None:
    """`within` is the tolerance of the log-probabilities."""
    expected = [question.answer for question in questions]
    assert answers.alone == expected
    assert answers.together == (expected if info.max_concurrency > 1 else [])
    if "logprobs" in info.features:
        for logprobs, question in zip(answers.logprobs, questions, strict=True):
            assert logprobs == pytest.approx(question.logprobs, abs=within)


if __name__ == "__main__":
    answers = [
        json.dumps((one.ids, [round(logprob, 6) for logprob in one.logprobs])) for one in questions_of(small_model())
    ]
    RECORDED.write_text("[\n" + ",\n".join(answers) + "\n]\n")
    rounded = [[round(log, 6) for log in logs] for logs in text_logprobs(small_model())]
    RECORDED_TEXT.write_text(json.dumps(rounded) + "\n")
