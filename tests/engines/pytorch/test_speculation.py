"""Guessed tokens change how many a forward pass yields, and nothing else."""

from pathlib import Path
from typing import Any

import pytest

from engines.contract.base import GenerateRequest, Model
from engines.contract.errors import EngineUnavailable
from engines.pytorch.speculation import DraftGuesser, NgramGuesser
from engines.transformers import TransformersEngine, TransformersOptions
from tests.support.engines.reference import Reference
from tests.support.engines.static_decoder import prompt
from tests.support.engines.tiny_models import write_tiny

pytestmark = pytest.mark.xdist_group("torch")

TOKENS = 20


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        pytest.param([1, 2, 3, 9, 8, 1, 2, 3], [9, 8, 1], id="what followed the last three"),
        pytest.param([4, 3, 5, 6, 3], [5, 6, 3], id="or the last one"),
        pytest.param([7, 1, 7, 2, 7], [2, 7], id="the latest place counts"),
        pytest.param([1, 2, 3], [], id="nothing, where the text is new"),
        pytest.param([1], [], id="or too short"),
    ],
)
def test_ngrams_are_looked_up_in_the_text(ids: list[int], expected: list[int]) -> None:
    assert NgramGuesser().guess(ids, 3) == expected


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, Reference]:
    return write_tiny(tmp_path_factory.mktemp("tiny"), "llama")


def test_a_draft_model_guesses_its_greedy_answer_whatever_was_rejected(tiny: tuple[Model, Reference]) -> None:
    import torch

    _, reference = tiny
    guesser = DraftGuesser(reference.model, torch.device("cpu"))
    ids = prompt(0, 12)
    for accepted in (0, 3, 1, 5, 2):  # so many of the last guess, then another token
        with torch.inference_mode():
            guessed = guesser.guess(ids, 5)
        assert guessed == reference.greedy(ids, 5, ())
        ids = [*ids, *guessed[:accepted], 100 + accepted]


class Counting:
    """An engine whose forward passes are counted."""

    def __init__(self, model: Model, **options: Any) -> None:
        self.engine = TransformersEngine(model, TransformersOptions(dtype="float32", device="cpu", **options))
        self.engine.load()
        self.passes, forward = 0, self.engine._forward

        def counted(*args: Any) -> Any:
            self.passes += 1
            return forward(*args)

        self.engine._forward = counted  # type: ignore[assignment, method-assign]

    def tokens(self, ids: list[int], **settings: Any) -> list[int]:
        request = GenerateRequest("", tuple(ids), TOKENS, **({"ignore_eos": True} | settings))
        answer = self.engine._tokens(request)
        return [next(answer)[0] for _ in range(TOKENS)]


@pytest.mark.parametrize("settings", [{}, {"temperature": 1.0, "seed": 3}], ids=["greedy", "sampled"])
def test_an_answer_with_ngrams_is_the_answer(tiny: tuple[Model, Reference], settings: dict[str, Any]) -> None:
    model, _ = tiny
    plain, assisted = Counting(model), Counting(model, draft="ngram")
    for seed in range(3):
        ids = prompt(seed, 10) * 3
        assert assisted.tokens(ids, **settings) == plain.tokens(ids, **settings)
    assert plain.passes == 3 * TOKENS
    assert assisted.passes <= plain.passes


def test_a_draft_that_is_always_right_saves_passes(tiny: tuple[Model, Reference]) -> None:
    model, reference = tiny
    assisted = Counting(model, draft=str(model.folder), guesses=4)
    ids = prompt(7, 10)
    assert assisted.tokens(ids) == reference.greedy(ids, TOKENS, ())
    assert assisted.passes == 1 + -(-(TOKENS - 1) // 5), "the prompt, then five tokens a pass"


def test_what_cannot_be_served_gets_a_sentence(tiny: tuple[Model, Reference], tmp_path: Path) -> None:
    model, _ = tiny
    other, _ = write_tiny(tmp_path, "llama", vocab_size=600)
    with pytest.raises(
        EngineUnavailable, match="the draft model has a vocabulary of 600 tokens and the model one of 512"
    ):
        Counting(model, draft=str(other.folder))
    with pytest.raises(EngineUnavailable, match="no model called `nothing`; choose from"):
        Counting(model, draft="nothing")
    with pytest.raises(EngineUnavailable, match="quantise=bnb-int8 needs bitsandbytes; install with: pip install bits"):
        Counting(model, quantise="bnb-int8")
    with pytest.raises(EngineUnavailable, match="attention=flash_attention_2 runs on cuda, not on cpu; there are"):
        Counting(model, attention="flash_attention_2")


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_every_attention_says_the_same(attention: str, tiny: tuple[Model, Reference]) -> None:
    model, reference = tiny
    engine = Counting(model, attention=attention)
    assert engine.engine._net.config._attn_implementation == attention
    assert engine.tokens(prompt(8, 30)) == reference.greedy(prompt(8, 30), TOKENS, ())
