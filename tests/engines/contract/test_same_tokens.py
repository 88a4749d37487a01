"""What test_engine_contract.py shows of every engine, of those that need more than it starts: an option, a program of
their own, or another measure because they round."""

from __future__ import annotations

import pytest

from engines.contract.base import EngineInfo
from engines.contract.registry import engine_class
from engines.process.loading import load_engine
from tests.conftest import BackgroundLoop
from tests.support.engines.ten_questions import (
    Answers,
    Question,
    answers_of,
    assert_those_of_transformers,
    small_model,
)

LOADING = 1800  # seconds, for a library that is loaded on a busy machine
VLLM = {"dtype": "float32", "eager": "yes", "kv_gib": "0.5", "context": "4096"}  # compiling takes a minute
OWN = pytest.mark.own_environment


async def started_and_asked(
    name: str, options: dict[str, str], questions: list[Question]
) -> tuple[EngineInfo, Answers]:
    engine = load_engine(name, small_model(), options)
    info = await engine.start()
    try:
        return info, await answers_of(engine, info, questions)
    finally:
        await engine.stop()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        pytest.param("vllm", VLLM | {"speculative_tokens": "3"}, id="vllm, guessing", marks=OWN),
        pytest.param("lmrs", {"dtype": "float32"}, id="lmrs", marks=pytest.mark.lmrs),
    ],
)
def test_ten_prompts_get_the_tokens_of_transformers(
    name: str, options: dict[str, str], questions: list[Question], background: BackgroundLoop
) -> None:
    info, answers = background.run(started_and_asked(name, options, questions), LOADING)
    assert_those_of_transformers(answers, info, questions)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        pytest.param("openvino", {}, id="openvino, which keeps keys and values in 8 bits", marks=OWN),
        pytest.param("llamacpp", {"dtype": "float32"}, id="llamacpp, which keeps them in 16", marks=OWN),
    ],
)
def test_an_engine_that_rounds_begins_most_answers_alike(
    name: str, options: dict[str, str], questions: list[Question], background: BackgroundLoop
) -> None:
    if (reason := engine_class(name).why_not_here()) is not None:
        pytest.skip(f"{name} cannot run here: {reason}")
    _, answers = background.run(started_and_asked(name, options, questions), LOADING)
    for texts in (answers.alone, answers.together):
        begun = [question.answer[: len(question.answer) // 4] for question in questions]
        alike = sum(text.startswith(beginning) for text, beginning in zip(texts, begun, strict=True))
        print(f"{name}: {alike} of {len(begun)} answers begin alike")
        assert alike > len(begun) / 2, "an error in its cache or weights leaves none"
