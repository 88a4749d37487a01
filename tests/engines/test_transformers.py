"""What only the Transformers baseline shows: every architecture, a request's settings, and what it refuses."""

import asyncio
import contextlib
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engines.contract.base import Chunk, EngineInfo, GenerateRequest, Model
from engines.contract.errors import BadRequest, EngineUnavailable
from engines.models.fetch import fetch_model
from engines.text.detokenize import tokenizer_of
from engines.transformers import TransformersEngine, TransformersOptions
from tests.support.engines.small_model import small_model
from tests.support.engines.ten_questions import questions_of, recorded_questions, recorded_text, text_logprobs
from tests.support.engines.tiny_models import write_tiny
from tests.support.engines.torch_when_used import torch

pytestmark = pytest.mark.xdist_group("torch")

QUESTION = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"


class Loaded:
    """The engine in this process, where its network can be looked at."""

    def __init__(self, model: Model, **options) -> None:  # type: ignore[no-untyped-def]
        self.engine = TransformersEngine(model, TransformersOptions(**options))
        self.info: EngineInfo = self.engine.load()
        self.tokenizer = tokenizer_of(model.folder)

    def ids(self, prompt: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(prompt).ids)

    def chunks(self, prompt: str = QUESTION, **settings) -> list[Chunk]:  # type: ignore[no-untyped-def]
        request = GenerateRequest(prompt, self.ids(prompt), **({"max_tokens": 24} | settings))
        # On the engine's own thread, as in its worker: a second one would have OpenMP workers of its own.
        return self.engine._threads.submit(lambda: list(self.engine.generate_blocking(request))).result()


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return Loaded(fetch_model(), dtype="float32", device="cpu")


def generated(loaded: Loaded, prompt: str, tokens: int) -> list[int]:
    """What `model.generate` answers to the same ids."""
    ids = torch.tensor([loaded.ids(prompt)])
    with torch.inference_mode():
        whole = loaded.engine._net.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False, eos_token_id=None
        )
    return whole[0, ids.shape[1] :].tolist()  # type: ignore[no-any-return]


def chosen(loaded: Loaded, prompt: str, tokens: int) -> list[int]:
    request = GenerateRequest(prompt, loaded.ids(prompt), max_tokens=tokens, ignore_eos=True)
    ids = loaded.engine._tokens(request)
    return [next(ids)[0] for _ in range(tokens)]


def test_the_recorded_answers_are_those_of_transformers() -> None:
    """To which tests/engines/contract holds every engine."""
    for said, recorded in zip(questions_of(small_model()), recorded_questions(), strict=True):
        assert said.ids == recorded.ids
        assert said.logprobs == pytest.approx(recorded.logprobs, abs=1e-4)
    for logs, recorded_logs in zip(text_logprobs(small_model()), recorded_text(), strict=True):
        assert logs == pytest.approx(recorded_logs, abs=1e-4)


@pytest.mark.parametrize("family", ["gpt2", "mamba"])
def test_other_architectures_keep_their_own_kind_of_cache(family: str, tmp_path: Path) -> None:
    model, _ = write_tiny(tmp_path, family, vocab_size=49_152)
    shape = Loaded(model, dtype="float32", device="cpu")
    assert chosen(shape, "one two three", 12) == generated(shape, "one two three", 12)
    assert shape.info.model == model.name


def test_a_state_space_model_keeps_a_state_of_one_size(tmp_path: Path) -> None:
    model, _ = write_tiny(tmp_path, "mamba")
    shape = Loaded(model, dtype="float32", device="cpu")
    assert shape.info.context_length == 131_072, "no limit of its own"

    def kept(tokens: int) -> int:
        with torch.inference_mode():
            _, cache = shape.engine._forward([1] * tokens, {})
        (cache,) = cache.values()
        states = [state for layer in cache.layers for state in (layer.conv_states, layer.recurrent_states)]
        return sum(one.nbytes for state in states for one in state.values())

    assert kept(20) == kept(40) == shape.info.options["state_bytes"]


def test_random_weights_are_the_same_for_everybody() -> None:
    model = fetch_model("random:llama-3.2-tiny")
    one, other = (TransformersEngine(model, TransformersOptions(device="cpu")) for _ in range(2))
    assert one.load() == other.load()
    for ours, theirs in zip(one._net.parameters(), other._net.parameters(), strict=True):
        assert ours.equal(theirs)


async def answer(engine: TransformersEngine, request: GenerateRequest, most: int = 99) -> list[Chunk]:
    chunks: list[Chunk] = []
    stream = engine.generate(request)
    async with contextlib.aclosing(stream):  # type: ignore[type-var]
        async for chunk in stream:
            chunks.append(chunk)
            if len(chunks) == most:
                break
    return chunks


@pytest.fixture(scope="module")
def library() -> Loaded:
    return Loaded(fetch_model(), dtype="float32", device="cpu", loop="generate")


def test_the_librarys_own_loop_gives_the_same_answer(loaded: Loaded, library: Loaded) -> None:
    def both(**settings: Any) -> tuple[list[Chunk], list[Chunk]]:
        request = GenerateRequest(QUESTION, loaded.ids(QUESTION), **({"max_tokens": 14} | settings))
        ours, theirs = (asyncio.run(answer(one.engine, request)) for one in (loaded, library))
        return ours, theirs

    for settings in ({}, {"ignore_eos": True, "max_tokens": 10}, {"stop": ("France",)}, {"min_tokens": 10}):
        ours, theirs = both(**settings)
        assert theirs == ours, settings
    _, once = both(temperature=1.0, seed=3, top_p=0.9, max_tokens=8)
    assert once == both(temperature=1.0, seed=3, top_p=0.9, max_tokens=8)[1], "a seed repeats"
    assert "logprobs" not in library.info.features


def test_the_librarys_own_loop_stops_where_nobody_waits(library: Loaded) -> None:
    request = GenerateRequest(QUESTION, library.ids(QUESTION), max_tokens=4000, ignore_eos=True)
    began = time.monotonic()
    assert len(asyncio.run(answer(library.engine, request, most=2))) == 2
    assert time.monotonic() - began < 60, "4,000 tokens would take longer"
    with pytest.raises(BadRequest, match="streams no log-probabilities"):
        asyncio.run(answer(library.engine, replace(request, logprobs=1)))


def test_a_folder_it_cannot_read_gets_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "no such thing"}')
    (tmp_path / "tokenizer.json").write_bytes((fetch_model().folder / "tokenizer.json").read_bytes())
    with pytest.raises(EngineUnavailable, match="transformers could not load broken: "):
        TransformersEngine(Model("broken", tmp_path), TransformersOptions(device="cpu")).load()
