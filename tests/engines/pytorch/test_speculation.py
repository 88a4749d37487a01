"""Drafted tokens change how many a forward pass yields, and nothing else."""

from pathlib import Path
from typing import Any

import pytest

from engines.contract.base import Chunk, GenerateRequest, Model
from engines.contract.errors import EngineUnavailable
from engines.transformers import TransformersEngine, TransformersOptions
from tests.support.engines.reference import Reference
from tests.support.engines.static_decoder import prompt
from tests.support.engines.tiny_models import write_tiny

pytestmark = pytest.mark.xdist_group("torch")

TOKENS = 20


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, Reference]:
    return write_tiny(tmp_path_factory.mktemp("tiny"), "llama")


class Counting:
    """An engine whose forward passes are counted."""

    def __init__(self, model: Model, **options: Any) -> None:
        self.engine = TransformersEngine(model, TransformersOptions(dtype="float32", device="cpu", **options))
        self.info = self.engine.load()
        self.passes = 0
        self.engine._net.register_forward_pre_hook(self._count)

    def _count(self, *_: Any) -> None:
        self.passes += 1

    def chunks(self, ids: list[int], **settings: Any) -> list[Chunk]:
        request = GenerateRequest("", tuple(ids), TOKENS, **({"ignore_eos": True} | settings))
        found: list[Chunk] = []

        def put(chunk: Chunk) -> bool:
            found.append(chunk)
            return True

        self.engine._threads.submit(self.engine.answer_blocking, request, put).result()
        return found


@pytest.mark.parametrize("settings", [{}, {"min_tokens": 5, "ignore_eos": False}, {"stop": ("a",)}])
def test_an_answer_with_ngrams_is_the_answer(tiny: tuple[Model, Reference], settings: dict[str, Any]) -> None:
    model, _ = tiny
    plain, assisted = Counting(model), Counting(model, speculative_tokens=5)
    for seed in range(3):
        ids = prompt(seed, 10) * 3
        assert assisted.chunks(ids, **settings) == plain.chunks(ids, **settings)
    assert assisted.passes <= plain.passes
    assert (plain.info.options["loop"], assisted.info.options["loop"]) == ("ours", "generate")
    assert "logprobs" not in assisted.info.features


def test_a_draft_that_is_always_right_saves_passes(tiny: tuple[Model, Reference]) -> None:
    model, _ = tiny
    plain, assisted = Counting(model), Counting(model, speculative_tokens=4, draft_model=str(model.folder))
    ids = prompt(7, 10)
    assert assisted.chunks(ids) == plain.chunks(ids)
    assert (plain.passes, assisted.passes) == (TOKENS, TOKENS // 5), "five tokens a pass"


def test_a_seed_repeats_a_sampled_answer(tiny: tuple[Model, Reference]) -> None:
    assisted = Counting(tiny[0], speculative_tokens=5)
    ids = prompt(3, 10) * 3
    once, twice = (assisted.chunks(ids, temperature=1.0, seed=3) for _ in range(2))
    assert once == twice
    assert len(once) == TOKENS


def test_what_cannot_be_served_gets_a_sentence(tiny: tuple[Model, Reference], tmp_path: Path) -> None:
    model, _ = tiny
    other, _ = write_tiny(tmp_path / "other", "llama", vocab_size=600)
    state_space, _ = write_tiny(tmp_path / "mamba", "mamba")
    with pytest.raises(
        EngineUnavailable, match="the draft model has a vocabulary of 600 tokens and the model one of 512"
    ):
        Counting(model, speculative_tokens=5, draft_model=str(other.folder))
    with pytest.raises(EngineUnavailable, match="no model called `nothing`; choose from"):
        Counting(model, speculative_tokens=5, draft_model="nothing")
    with pytest.raises(EngineUnavailable, match="cannot take back wrong guesses"):
        Counting(state_space, speculative_tokens=5)
    with pytest.raises(EngineUnavailable, match="a draft model needs `speculative_tokens`"):
        Counting(model, draft_model=str(model.folder))
