"""What test_engine_contract.py shows of every engine, of those that need more than it starts: an option, a program of
their own, or another measure because they round."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from engines.contract.base import EngineInfo, Model
from engines.contract.registry import engine_class
from engines.models.fetch import fetch_model
from engines.models.random_model import with_weights
from engines.process.engine_loading import load_engine
from engines.text.detokenize import tokenizer_of
from tests.conftest import BackgroundLoop
from tests.support.engines.reference import Reference
from tests.support.engines.small_model import END, small_model
from tests.support.engines.ten_questions import (
    QUESTIONS,
    TOKENS,
    Answers,
    Question,
    answers_of,
    assert_those_of_transformers,
    questions_of,
    recorded_questions,
)
from tests.support.engines.torch_when_used import torch

LOADING = 1800  # seconds, for a library that is loaded on a busy machine
VLLM = {"dtype": "float32", "eager": "yes", "kv_gib": "0.5", "context": "4096"}  # compiling takes a minute
OWN = pytest.mark.own_environment


LLAMA_CPP = {"dtype": "float32"}


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
    asked = questions_of(model)[: len(QUESTIONS)]  # the chats
    info, answers = background.run(started_and_asked("lmrs", {"dtype": "float32"}, asked, model), LOADING)
    assert_those_of_transformers(answers, info, asked)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        pytest.param("openvino", {}, id="openvino, which keeps keys and values in 8 bits", marks=OWN),
        pytest.param("llamacpp", LLAMA_CPP, id="llamacpp, which keeps them in 16", marks=OWN),
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


@OWN
def test_llama_cpp_never_generates_the_end_of_text_that_it_is_to_ignore(background: BackgroundLoop) -> None:
    """The others generate it as any other token. So its answer is that of Transformers without such tokens."""
    if (reason := engine_class("llamacpp").why_not_here()) is not None:
        pytest.skip(f"llamacpp cannot run here: {reason}")
    model = small_model()
    questions = [one for one in recorded_questions() if END in one.ids]
    _, answers = background.run(started_and_asked("llamacpp", LLAMA_CPP, questions, model), LOADING)
    reference, tokenizer = Reference.of(model.folder), tokenizer_of(model.folder)
    for text, question in zip(answers.alone, questions, strict=True):
        prompt = torch.tensor([list(question.request.prompt_token_ids)])
        made = reference.model.generate(prompt, max_new_tokens=TOKENS, do_sample=False, suppress_tokens=[END])
        before, expected = (tokenizer.decode(ids) for ids in (question.ids, made[0, prompt.shape[1] :].tolist()))
        assert expected != before
        assert text.startswith(expected[: len(expected) // 2])
