"""What test_engine_contract.py shows of every engine, of those that need more than it starts: an option, a program of
their own, or another measure because they round."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from engines.contract.base import EngineInfo, Model
from engines.contract.registry import engine_class
from engines.models.fetch import fetch_model
from engines.models.random_model import with_weights
from engines.process.loading import load_engine
from tests.conftest import BackgroundLoop
from tests.support.engines.small_model import small_model
from tests.support.engines.ten_questions import (
    Answers,
    Question,
    answers_of,
    assert_those_of_transformers,
    questions_of,
    recorded_questions,
)

LOADING = 1800  # seconds, for a library that is loaded on a busy machine
VLLM = {"dtype": "float32", "eager": "yes", "kv_gib": "0.5", "context": "4096"}  # compiling takes a minute
OWN = pytest.mark.own_environment


async def started_and_asked(
    name: str, options: dict[str, str], questions: Sequence[Question], model: Model
) -> tuple[EngineInfo, Answers]:
    engine = load_engine(name, model, options)
    info = await engine.start()
    try:
        return info, await answers_of(engine, info, questions)
    finally:
        await engine.stop()


@OWN
def test_vllm_that_guesses_tokens_gets_those_of_transformers(background: BackgroundLoop) -> None:
    questions = recorded_questions()
    work = started_and_asked("vllm", VLLM | {"speculative_tokens": "3"}, questions, small_model())
    info, answers = background.run(work, LOADING)
    assert_those_of_transformers(answers, info, questions)


@pytest.mark.lmrs
def test_lmrs_gets_the_tokens_of_transformers(background: BackgroundLoop) -> None:
    """It reads only prompts in the chat template of Llama 3, whose special tokens are the last of its vocabulary."""
    model = with_weights(fetch_model("random:llama-3.2-tiny"))
    asked = questions_of(model)
    info, answers = background.run(started_and_asked("lmrs", {"dtype": "float32"}, asked, model), LOADING)
    assert_those_of_transformers(answers, info, asked)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        pytest.param("openvino", {}, id="openvino, which keeps keys and values in 8 bits", marks=OWN),
        pytest.param("llamacpp", {"dtype": "float32"}, id="llamacpp, which keeps them in 16", marks=OWN),
    ],
)
def test_an_engine_that_rounds_begins_most_answers_alike(
    name: str, options: dict[str, str], background: BackgroundLoop
) -> None:
    questions = recorded_questions()
    if (reason := engine_class(name).why_not_here()) is not None:
        pytest.skip(f"{name} cannot run here: {reason}")
    _, answers = background.run(started_and_asked(name, options, questions, small_model()), LOADING)
    for texts in (answers.alone, answers.together):
        begun = [question.answer[: len(question.answer) // 4] for question in questions]
        alike = sum(text.startswith(beginning) for text, beginning in zip(texts, begun, strict=True))
        print(f"{name}: {alike} of {len(begun)} answers begin alike")
        assert alike > len(begun) / 2, "an error in its cache or weights leaves none"
