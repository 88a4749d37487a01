"""Questions to the engines written in Rust, and the comparison of their answers with Transformers'."""

from __future__ import annotations

from typing import Any

import pytest
from tokenizers import Tokenizer

from engines.contract.base import GenerateRequest, Model
from engines.process.engine_loading import load_engine
from engines.process.stream import ReceivedChunk
from engines.process.supervisor import ChildEngine
from tests.support.engines.tiny_models import VOCABULARY

TOKENS = 32
PROMPT = tuple((37 * at) % VOCABULARY for at in range(24))  # for models of random weights


async def answer(engine: ChildEngine, prompt: tuple[int, ...], **settings: Any) -> list[ReceivedChunk]:
    request = GenerateRequest("", prompt, **({"max_tokens": TOKENS, "ignore_eos": True} | settings))
    return [chunk async for ready in engine.generate(request) for chunk in ready]


def text(chunks: list[ReceivedChunk]) -> str:
    return "".join(chunk.text for chunk in chunks)


async def first_words(
    name: str, model: Model, options: dict[str, str], prompt: tuple[int, ...], logprobs: int = 5
) -> tuple[str, list[ReceivedChunk]]:
    """Return the format of the weights that the engine reports, and its answer of one token."""
    engine = load_engine(name, model, {"device": "cpu"} | options)
    info = await engine.start()
    try:
        return info.dtype, await answer(engine, prompt, max_tokens=1, logprobs=logprobs)
    finally:
        await engine.stop()


def assert_same_likeliest(chunk: ReceivedChunk, wanted: list[tuple[int, float]], tokenizer: Tokenizer) -> None:
    top = chunk.logprobs[0].top
    assert [token for token, _, _ in top] == [tokenizer.decode([id], False) for id, _ in wanted]
    assert [logprob for _, logprob, _ in top] == pytest.approx([logprob for _, logprob in wanted], abs=1e-3)
