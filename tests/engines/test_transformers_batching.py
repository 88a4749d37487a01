"""Transformers' continuous batching: its sizes, its versions, its refusals. Its tokens: tests/engines/contract."""

import asyncio
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from engines.contract.base import Chunk, GenerateRequest
from engines.contract.errors import BadRequest, EngineUnavailable, FatalError
from engines.transformers_batching import BatchingOptions, TransformersBatchingEngine
from tests.support.engines.static_decoder import prompt
from tests.support.engines.tiny_models import write_tiny

pytestmark = pytest.mark.xdist_group("torch")


class Loaded:
    def __init__(self, folder: Path) -> None:
        model, _ = write_tiny(folder, "llama")
        options = BatchingOptions(device="cpu", dtype="float32", concurrency=4, kv_tokens=1024)
        self.engine = TransformersBatchingEngine(model, options)
        self.info = self.engine.load()

    async def answer(self, ids: list[int], **settings: Any) -> list[Chunk]:
        request = GenerateRequest("", tuple(ids), 10, **settings)
        return [chunk async for chunk in self.engine.generate(request)]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    one = Loaded(tmp_path_factory.mktemp("tiny"))
    yield one
    one.engine.close()


def test_it_is_warm_before_the_first_request(loaded: Loaded) -> None:
    """On a GPU, CUDA graphs are captured there, and not within a request that is measured."""
    assert loaded.engine._manager.warmed_up
    shown = loaded.info.options
    assert (shown["kv_tokens"], shown["batch_tokens"], shown["cuda_graphs"]) == (1024, 512, False)


def test_a_gpu_has_sizes_of_its_own() -> None:
    """A cache takes the memory that is free; pages are those of flash attention."""
    from transformers import ContinuousBatchingConfig

    names = {field.name for field in fields(ContinuousBatchingConfig)}

    def sizes(device: str, **options: Any) -> tuple[int, int | None, int | None]:
        given = TransformersBatchingEngine(None, BatchingOptions(**options)).batching(device, names)
        made = ContinuousBatchingConfig(**given)
        page = made.page_size if "page_size" in names else made.block_size
        return page, made.num_blocks, made.max_batch_tokens

    assert sizes("cpu") == (32, 512, 512)
    assert sizes("cuda") == (256, None, 8192)
    assert sizes("cuda", kv_tokens=1000, batch_tokens=2048) == (256, 4, 2048)
    assert sizes("cpu", concurrency=600) == (32, 512, 600)


def test_versions_that_name_less_get_what_they_know() -> None:
    """As 5.17 and 5.18 have it: a GPU machine's own Transformers may be either."""
    until_5_17 = {"block_size", "num_blocks", "max_batch_tokens", "max_requests_per_batch", "allow_block_sharing"}
    given = TransformersBatchingEngine(None, BatchingOptions()).batching("cuda", until_5_17)
    assert set(given) == until_5_17
    assert given["block_size"] == 256
    until_5_18 = until_5_17 - {"block_size"} | {"page_size"}
    assert set(TransformersBatchingEngine(None, BatchingOptions()).batching("cpu", until_5_18)) == until_5_18
    sdpa = TransformersBatchingEngine(None, BatchingOptions(attention="sdpa"))
    with pytest.raises(EngineUnavailable, match="batches with flash attention wherever it is installed"):
        sdpa.batching("cuda", until_5_18)


def test_an_older_transformers_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engines.transformers_batching.version", lambda name: "5.16.2")
    reason = TransformersBatchingEngine.why_not_here()
    assert reason == "it needs transformers 5.17, and 5.16.2 is installed; run: pip install -U transformers"


def test_a_request_after_the_end_of_the_batch_is_not_waited_for(tmp_path: Path) -> None:
    ended = Loaded(tmp_path)
    ended.engine._manager.stop(block=True)
    with pytest.raises(FatalError, match="Transformers' batch has ended"):
        asyncio.run(asyncio.wait_for(ended.answer(prompt(0, 5)), 20))


def test_a_request_that_samples_is_refused(loaded: Loaded) -> None:
    with pytest.raises(BadRequest, match="transformers-batching decodes greedily: send temperature 0"):
        asyncio.run(loaded.answer([5, 6], temperature=1.0))
