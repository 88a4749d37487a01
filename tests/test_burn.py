"""Burn against Transformers: the same 32-bit weights, so the same words and nearly the same logits."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from conftest import BackgroundLoop
from engines.base import Chunk, GenerateRequest
from engines.burn import BurnEngine, BurnOptions
from engines.child import ChildEngine
from engines.models import prepare

TOKENS = 64
PROMPTS = (
    "Once upon a time, in a small village near the sea, there lived",
    "The capital of France is",
    "def fibonacci(n):\n    ",
    "Water boils at",
    "Der schnelle braune Fuchs",
    "1, 2, 3, 4,",
    "<|im_start|>user\nWhat is the capital of Italy?<|im_end|>\n<|im_start|>assistant\n",
    "Dear Sir or Madam,\n\nI am writing",
    "The mitochondria is the",
    "In 1969, humans first",
)


@pytest.fixture(scope="module")
def prompts() -> list[tuple[str, tuple[int, ...]]]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(prepare().folder / "tokenizer.json"))
    return [(prompt, tuple(tokenizer.encode(prompt).ids)) for prompt in PROMPTS]


@pytest.fixture(scope="module")
def transformers() -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(prepare().folder, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def burn(background: BackgroundLoop) -> Iterator[ChildEngine]:
    from engines import load_engine

    if (reason := BurnEngine.why_not_here()) is not None:
        pytest.skip(reason)
    engine = load_engine("burn", prepare(), {"dtype": "float32", "device": "cpu"})
    background.run(engine.start())
    yield engine
    background.run(engine.stop())


async def answer(engine: ChildEngine, prompt: tuple[str, tuple[int, ...]], **settings: Any) -> list[Chunk]:
    request = GenerateRequest(*prompt, **({"max_tokens": TOKENS, "ignore_eos": True} | settings))
    return [chunk async for ready in engine.generate(request) for chunk in ready]


def test_ten_greedy_answers_at_once_are_those_of_transformers(
    burn: ChildEngine, transformers: Any, prompts: list[tuple[str, tuple[int, ...]]], background: BackgroundLoop
) -> None:
    import torch
    from tokenizers import Tokenizer

    async def all_at_once() -> list[list[Chunk]]:
        return list(await asyncio.gather(*(answer(burn, prompt) for prompt in prompts)))

    tokenizer = Tokenizer.from_file(str(prepare().folder / "tokenizer.json"))
    for (_, ids), chunks in zip(prompts, background.run(all_at_once()), strict=True):
        wanted = transformers.generate(
            torch.tensor([ids]), max_new_tokens=TOKENS, do_sample=False, pad_token_id=0, eos_token_id=None
        )[0, len(ids) :].tolist()
        assert sum(chunk.tokens for chunk in chunks) == TOKENS
        assert "".join(chunk.text for chunk in chunks) == tokenizer.decode(wanted, skip_special_tokens=True)


def test_the_five_likeliest_have_the_probabilities_of_transformers(
    burn: ChildEngine, transformers: Any, prompts: list[tuple[str, tuple[int, ...]]], background: BackgroundLoop
) -> None:
    import torch
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(prepare().folder / "tokenizer.json"))
    for prompt in prompts:
        (chunk,) = background.run(answer(burn, prompt, max_tokens=1, logprobs=5))
        with torch.inference_mode():
            wanted = torch.log_softmax(transformers(torch.tensor([prompt[1]])).logits[0, -1], -1).topk(5)
        top = chunk.logprobs[0].top
        assert [token for token, _ in top] == [tokenizer.decode([id], False) for id in wanted.indices.tolist()]
        assert [logprob for _, logprob in top] == pytest.approx(wanted.values.tolist(), abs=1e-3)


def test_a_prompt_longer_than_one_step_is_read_in_pieces(
    burn: ChildEngine, transformers: Any, background: BackgroundLoop
) -> None:
    """300 tokens are two steps of 256: positions, masks and the growing cache have to fit together."""
    import torch

    ids = tuple(100 + (37 * at) % 40_000 for at in range(300))
    (chunk,) = background.run(answer(burn, ("", ids), max_tokens=1, logprobs=1))
    with torch.inference_mode():
        wanted = torch.log_softmax(transformers(torch.tensor([ids])).logits[0, -1], -1).max()
    assert chunk.logprobs[0].logprob == pytest.approx(float(wanted), abs=1e-3)


def test_a_wrong_setting_is_told_before_anything_starts() -> None:
    with pytest.raises(ValueError, match="`concurrency` is 1 or more"):
        BurnOptions(concurrency=0)
