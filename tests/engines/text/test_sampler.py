"""The choice of tokens: the distribution is the model's own, bent only by what the request asks for."""

from __future__ import annotations

import math
import re
from collections import Counter

import pytest
from tokenizers import Tokenizer, models

from engines.contract.base import GenerateRequest
from engines.contract.errors import EngineError
from engines.text.sampler import OVERFLOWED, SampledAnswer, Sampler, logprob_of
from tests.support.engines.torch_when_used import torch

pytestmark = pytest.mark.xdist_group("torch")

DRAWS = 4000


@pytest.fixture(scope="module")
def logits() -> torch.Tensor:
    """Of four tokens with the probabilities 0.5, 0.25, 0.15 and 0.1."""
    return torch.tensor([0.5, 0.25, 0.15, 0.1]).log()


def request(tokens: int = 1, **settings) -> GenerateRequest:  # type: ignore[no-untyped-def]
    return GenerateRequest("", (1,), max_tokens=tokens, **settings)


def shares(logits: torch.Tensor, **settings) -> list[float]:  # type: ignore[no-untyped-def]
    """How often each of four tokens is drawn."""
    sampler = Sampler(request(seed=1, **settings), (), logits.device)
    counts = Counter(sampler.pick(logits) for _ in range(DRAWS))
    return [counts[id] / DRAWS for id in range(4)]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        pytest.param({"temperature": 0.0}, [1, 0, 0, 0], id="greedy takes the likeliest"),
        pytest.param({"temperature": 1.0}, [0.5, 0.25, 0.15, 0.1], id="temperature 1 is the model's own distribution"),
        pytest.param(
            {"temperature": 0.5}, [0.25 / 0.345, 0.0625 / 0.345, 0.0225 / 0.345, 0.01 / 0.345], id="0.5 squares it"
        ),
        pytest.param(
            {"temperature": 1.0, "top_p": 0.7}, [2 / 3, 1 / 3, 0, 0], id="top_p keeps the fewest that reach it"
        ),
        pytest.param({"temperature": 1.0, "top_p": 0.01}, [1, 0, 0, 0], id="top_p always keeps one"),
    ],
)
def test_tokens_are_drawn_as_often_as_asked(
    settings: dict[str, float], expected: list[float], logits: torch.Tensor
) -> None:
    # Four standard deviations of a share at 4000 draws are at most 0.032.
    assert shares(logits, **settings) == pytest.approx(expected, abs=0.032)


@pytest.mark.parametrize("top_p", [0.0, 5e-324, 1e-50, 1e-45, 1e-38, 1e-9, 1e-6])
@pytest.mark.parametrize("temperature", [1e-3, 1.0, 2.0])
@pytest.mark.parametrize("width", [4, 200_000])
def test_the_smallest_nucleus_is_the_likeliest_token(width: int, temperature: float, top_p: float) -> None:
    logits = torch.linspace(1.0, 0.0, width)
    sampler = Sampler(request(temperature=temperature, top_p=top_p), (), logits.device)
    assert [sampler.pick(logits) for _ in range(4)] == [0] * 4


@pytest.mark.parametrize("temperature", [1e-3, 1.0, 2.0])
@pytest.mark.parametrize("logits", [[3e38, -3e38, 0.0], [-3e38, -3.2e38, -3.3e38], [0.0, -math.inf, -math.inf]])
def test_logits_at_the_ends_of_their_format_give_the_likeliest_token(logits: list[float], temperature: float) -> None:
    values = torch.tensor(logits)
    for top_p in (1.0, 0.5):
        assert Sampler(request(temperature=temperature, top_p=top_p), (), values.device).pick(values) == 0


def test_a_seed_repeats_and_another_one_does_not(logits: torch.Tensor) -> None:
    def draw(seed: int) -> list[int]:
        sampler = Sampler(request(seed=seed, temperature=1.0), (), logits.device)
        return [sampler.pick(logits) for _ in range(64)]

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


def test_no_end_before_min_tokens(logits: torch.Tensor) -> None:
    sampler = Sampler(request(min_tokens=2), (0, 1), logits.device)
    before = logits.clone()
    assert [sampler.pick(logits) for _ in range(3)] == [2, 2, 0]
    assert logits.equal(before), "the logits are the caller's"


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_model_that_has_overflowed_gives_no_answer(value: float, temperature: float) -> None:
    logits = torch.full((4,), value)
    with pytest.raises(EngineError, match=re.escape(OVERFLOWED)):
        Sampler(request(temperature=temperature), (), logits.device).pick(logits)


def test_forced_tokens_are_of_the_prompt_and_end_no_answer(logits: torch.Tensor) -> None:
    """An end of text and a stop string among them, and `min_tokens` counts what comes after them."""
    letters = Tokenizer(models.BPE({"a": 0, "b": 1, "c": 2, "d": 3}, []))
    asked = request(5, forced_token_ids=(1, 2, 1), stop=("c",), min_tokens=1, logprobs=0)
    answer = SampledAnswer(asked, letters, {0, 1}, 5, logits.device)
    found = [answer.next(logits) for _ in range(5)]
    assert [id for id, _ in found] == [1, 2, 1, 2, 0]
    assert [chunk.finish_reason for _, chunk in found] == [None, None, None, None, "stop"]
    scored = SampledAnswer(request(3, forced_token_ids=(1, 2, 1)), letters, {0, 1}, 3, logits.device)
    assert [scored.next(logits)[1].finish_reason for _ in range(3)] == [None, None, "length"]


def test_logprobs_are_the_models_own(logits: torch.Tensor) -> None:
    letters = Tokenizer(models.BPE({"a": 0, "b": 1, "c": 2, "d": 3}, []))
    one = logprob_of(logits + 3, 2, 2, letters)
    assert one.token == "c"
    assert one.logprob == pytest.approx(math.log(0.15), abs=1e-5)
    assert [token for token, _, _ in one.top] == ["a", "b"]
    assert [value for _, value, _ in one.top] == pytest.approx([math.log(0.5), math.log(0.25)], abs=1e-5)


def test_there_are_no_more_alternatives_than_tokens(logits: torch.Tensor) -> None:
    letters = Tokenizer(models.BPE({"a": 0, "b": 1, "c": 2, "d": 3}, []))
    assert [token for token, _, _ in logprob_of(logits, 2, 20, letters).top] == ["a", "b", "c", "d"]
