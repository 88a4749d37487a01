"""Ten questions to the small model that every engine runs, and what Transformers answers with the same weights."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from engines.contract.base import EngineInfo, GenerateRequest, Model
from engines.models.cache import built_once
from engines.process.child import ChildEngine
from servers.openai.prompts import load_tokenizer
from tests.support.engines.reference import Reference

QUESTIONS = (
    "Where does the river that passes the mill come from?",
    "Hello",
    "What do cats eat?",
    "How many days has February in a leap year?",
    "Write a short poem about the sea.",
    "What is 17 times 23?",
    "Why is the sky blue?",
    "Translate into German: the quick brown fox jumps over the lazy dog.",
    "List the vowels of the alphabet, one per line, and then count the consonants that follow each of them.",
    "Who wrote that?",
)
TOKENS = 12


@dataclass(frozen=True)
class Question:
    """`answer` is that of Transformers, with the log-probability of each token."""

    request: GenerateRequest
    answer: str
    logprobs: tuple[float, ...]


@dataclass(frozen=True)
class Answers:
    """`alone` and `together` are in the order of the questions."""

    alone: list[str]
    together: list[str]
    logprobs: list[list[float]]  # of those that were asked alone


def questions_of(model: Model, kept: Path) -> list[Question]:
    """In the model's chat template. The folder `kept` holds what Transformers answers: it is asked once for all of
    pytest's processes, in one of its own, because torch takes a gigabyte."""
    tokenizer = load_tokenizer(model)
    texts = [tokenizer.render([{"role": "user", "content": asked}]) for asked in QUESTIONS]
    prompts = [tuple(tokenizer.encode(text, special=False, limit=4096)) for text in texts]

    def ask(folder: Path) -> None:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            said = process.submit(answers_of_transformers, model.folder, prompts).result()
        (folder / "answers.json").write_text(json.dumps(said))

    made = []
    said = json.loads((built_once(kept, ask) / "answers.json").read_text())
    for text, ids, (answer, logprobs) in zip(texts, prompts, said, strict=True):
        assert len(set(answer)) > TOKENS / 2, "an answer that repeats itself would compare nothing"
        request = GenerateRequest(text, ids, TOKENS, ignore_eos=True)
        made.append(Question(request, tokenizer.decode(answer), tuple(logprobs)))
    return made


def answers_of_transformers(folder: Path, prompts: Sequence[tuple[int, ...]]) -> list[tuple[list[int], list[float]]]:
    """Token ids, and their log-probabilities."""
    reference = Reference.of(folder)
    return [reference.answer(ids, TOKENS) for ids in prompts]


async def answers_of(engine: ChildEngine, info: EngineInfo, questions: Sequence[Question]) -> Answers:
    """One after the other, which shows a cache or a frozen constant that is kept from the first request, then as many
    at once as the engine takes."""
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


def assert_those_of_transformers(answers: Answers, info: EngineInfo, questions: Sequence[Question]) -> None:
    expected = [question.answer.lstrip() for question in questions]  # mistral.rs drops a space at the beginning
    assert [text.lstrip() for text in answers.alone] == expected
    assert [text.lstrip() for text in answers.together] == (expected if info.max_concurrency > 1 else [])
    if "logprobs" in info.features:
        for logprobs, question in zip(answers.logprobs, questions, strict=True):
            assert logprobs == pytest.approx(question.logprobs, abs=1e-4)
