"""Transformers' continuous batching behind the contract: the tokens of Transformers, for many requests at a time."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from engines.contract.base import Chunk, GenerateRequest
from engines.contract.errors import BadRequest
from engines.text.detokenize import Detokenizer
from engines.transformers_batching import BatchingOptions, TransformersBatchingEngine
from tests.support.engines.reference import Reference
from tests.support.engines.static_decoder import prompt
from tests.support.engines.tiny_models import write_tiny

pytestmark = pytest.mark.xdist_group("torch")

TOKENS = 10


class Loaded:
    def __init__(self, folder: Path) -> None:
        self.reference: Reference
        model, self.reference = write_tiny(folder, "llama")
        self.engine = TransformersBatchingEngine(
            model, BatchingOptions(device="cpu", dtype="float32", concurrency=4, kv_tokens=1024)
        )
        self.engine.load()
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    async def answer(self, ids: list[int], **settings: Any) -> list[Chunk]:
        request = GenerateRequest("", tuple(ids), **({"max_tokens": TOKENS, "ignore_eos": True} | settings))
        return [chunk async for chunk in self.engine.generate(request)]

    def expected(self, ids: list[int]) -> str:
        text = Detokenizer(self.tokenizer, ids)
        return "".join([text.add(id) for id in self.reference.greedy(ids, TOKENS, ())]) + text.rest()


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    one = Loaded(tmp_path_factory.mktemp("tiny"))
    yield one
    one.engine.close()


def text(chunks: list[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks)


def test_ten_requests_together_get_the_tokens_of_transformers(loaded: Loaded) -> None:
    prompts = [prompt(seed, 3 + 7 * seed) for seed in range(10)]

    async def all_at_once() -> list[list[Chunk]]:
        return list(await asyncio.gather(*(loaded.answer(ids) for ids in prompts)))

    for ids, chunks in zip(prompts, asyncio.run(all_at_once()), strict=True):
        assert text(chunks) == loaded.expected(ids)
        assert [chunk.tokens for chunk in chunks] == [1] * TOKENS
        assert chunks[-1].finish_reason == "length"


def test_the_second_request_is_not_answered_from_the_first_ones_cache(loaded: Loaded) -> None:
    for seed in (20, 21, 20):
        ids = prompt(seed, 12)
        assert text(asyncio.run(loaded.answer(ids))) == loaded.expected(ids)


def test_a_request_that_samples_is_refused(loaded: Loaded) -> None:
    with pytest.raises(BadRequest, match="transformers-batching decodes greedily: send temperature 0"):
        asyncio.run(loaded.answer([5, 6], temperature=1.0))
