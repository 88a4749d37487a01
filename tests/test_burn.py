"""Burn against Transformers: the same 32-bit weights, so the same words and nearly the same logits."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from reference import PROMPTS, Reference
from tiny_models import VOCABULARY, write_tiny
from tokenizers import Tokenizer

from conftest import BackgroundLoop
from engines import load_engine
from engines.base import BadRequest, Chunk, EngineCrashed, EngineUnavailable, GenerateRequest, Model
from engines.burn import BurnOptions
from engines.child import ChildEngine
from engines.models import prepare

TOKENS = 64
F32 = {"dtype": "float32", "device": "cpu"}


@pytest.fixture(scope="module")
def burn(rust_program: Callable[[str], Path], background: BackgroundLoop) -> Iterator[ChildEngine]:
    rust_program("burn")
    engine = load_engine("burn", prepare(), F32)
    background.run(engine.start())
    yield engine
    background.run(engine.stop())


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(prepare().folder / "tokenizer.json"))


@pytest.fixture(scope="module")
def prompts(tokenizer: Tokenizer) -> list[tuple[int, ...]]:
    return [tuple(tokenizer.encode(prompt).ids) for prompt in PROMPTS]


@pytest.fixture(scope="module")
def transformers() -> Reference:
    return Reference.of(prepare().folder)


async def answer(engine: ChildEngine, prompt: tuple[int, ...], **settings: Any) -> list[Chunk]:
    request = GenerateRequest("", prompt, **({"max_tokens": TOKENS, "ignore_eos": True} | settings))
    return [chunk async for ready in engine.generate(request) for chunk in ready]


def text(chunks: list[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks)


@pytest.mark.parametrize(("together", "count"), [(True, 10), (False, 2)], ids=["ten at once", "two, one by one"])
def test_greedy_answers_are_those_of_transformers(
    together: bool,
    count: int,
    burn: ChildEngine,
    transformers: Reference,
    prompts: list[tuple[int, ...]],
    tokenizer: Tokenizer,
    background: BackgroundLoop,
) -> None:
    """One token at a time and ten at a time go through other kernels."""
    asked = prompts[:count]

    async def answers() -> list[list[Chunk]]:
        if together:
            return await asyncio.gather(*(answer(burn, prompt) for prompt in asked))
        return [await answer(burn, prompt) for prompt in asked]

    for prompt, chunks in zip(asked, background.run(answers()), strict=True):
        wanted = transformers.greedy(prompt, TOKENS, guess=tokenizer.encode(text(chunks)).ids)
        assert sum(chunk.tokens for chunk in chunks) == TOKENS
        assert text(chunks) == tokenizer.decode(wanted)


def assert_same_likeliest(chunk: Chunk, wanted: list[tuple[int, float]], tokenizer: Tokenizer) -> None:
    top = chunk.logprobs[0].top
    assert [token for token, _ in top] == [tokenizer.decode([id], False) for id, _ in wanted]
    assert [logprob for _, logprob in top] == pytest.approx([logprob for _, logprob in wanted], abs=1e-3)


def test_the_five_likeliest_have_the_probabilities_of_transformers(
    burn: ChildEngine,
    transformers: Reference,
    prompts: list[tuple[int, ...]],
    tokenizer: Tokenizer,
    background: BackgroundLoop,
) -> None:
    for prompt in prompts:
        (chunk,) = background.run(answer(burn, prompt, max_tokens=1, logprobs=5))
        assert_same_likeliest(chunk, transformers.likeliest(prompt, 5), tokenizer)


def test_a_prompt_longer_than_one_step_is_read_in_pieces(
    burn: ChildEngine, transformers: Reference, tokenizer: Tokenizer, background: BackgroundLoop
) -> None:
    """300 tokens are two steps of 256: positions, masks and the growing cache have to fit together."""
    prompt = tuple(100 + (37 * at) % 40_000 for at in range(300))
    (chunk,) = background.run(answer(burn, prompt, max_tokens=1, logprobs=5))
    assert_same_likeliest(chunk, transformers.likeliest(prompt, 5), tokenizer)


def test_a_cancelled_answer_ends_within_a_token_and_the_others_go_on(
    burn: ChildEngine, prompts: list[tuple[int, ...]], background: BackgroundLoop
) -> None:
    async def one_leaves() -> tuple[int, str]:
        other = asyncio.ensure_future(answer(burn, prompts[1]))
        stream = burn.generate(GenerateRequest("", prompts[0], max_tokens=4000, ignore_eos=True))
        for _ in range(5):
            await anext(stream)
        stream.cancel()
        late = sum([chunk.tokens async for ready in stream for chunk in ready])
        assert stream.finish_reason == "cancelled"
        return late, text(await other)

    late, other = background.run(one_leaves())
    assert late <= 3, "one that was under way, and room for a busy machine"
    assert other == text(background.run(answer(burn, prompts[1])))


def test_a_killed_engine_fails_its_requests_clearly_and_comes_back(
    burn: ChildEngine, prompts: list[tuple[int, ...]], background: BackgroundLoop
) -> None:
    async def crash() -> list[BaseException]:
        answers = [asyncio.ensure_future(answer(burn, prompt, max_tokens=4000)) for prompt in prompts[:3]]
        await asyncio.sleep(0.3)
        assert burn.pid is not None
        os.kill(burn.pid, signal.SIGKILL)
        failed = await asyncio.gather(*answers, return_exceptions=True)
        async with asyncio.timeout(60):
            while burn.state != "ready":
                await asyncio.sleep(0.05)
        return [one for one in failed if isinstance(one, BaseException)]

    before = text(background.run(answer(burn, prompts[0], max_tokens=8)))
    errors = background.run(crash())
    assert [type(error) for error in errors] == [EngineCrashed] * 3
    assert "ended while this request was running: it was killed by SIGKILL" in str(errors[0])
    assert text(background.run(answer(burn, prompts[0], max_tokens=8))) == before


def test_strange_prompts_are_refused_with_a_sentence(burn: ChildEngine, background: BackgroundLoop) -> None:
    with pytest.raises(BadRequest, match="the prompt has 8192 tokens; the model's context holds 8192"):
        background.run(answer(burn, (100,) * 8192))
    with pytest.raises(BadRequest, match="token 49152 is none of the model's 49152"):
        background.run(answer(burn, (49152,)))


def first_word(model: Model, options: dict[str, str], background: BackgroundLoop) -> Chunk:
    async def ask() -> Chunk:
        engine = load_engine("burn", model, options)
        await engine.start()
        try:
            (chunk,) = await answer(engine, PROMPT, max_tokens=1, logprobs=5)
            return chunk
        finally:
            await engine.stop()

    return background.run(ask())


PROMPT = tuple((37 * at) % VOCABULARY for at in range(24))
LLAMA_3 = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}


@pytest.mark.parametrize(
    ("family", "differs"),
    [
        pytest.param("llama", {}, id="Llama, with a matrix of its own at the end"),
        pytest.param("llama", {"rope_parameters": LLAMA_3}, id="Llama 3.1, with stretched positions"),
        pytest.param("llama", {"head_dim": 24, "tie_word_embeddings": True}, id="odd shapes, and the embeddings twice"),
        pytest.param("mistral", {"head_dim": 32, "sliding_window": None}, id="Mistral, with narrower heads"),
        pytest.param("qwen2", {}, id="Qwen2, with biases"),
    ],
)
def test_every_family_says_what_transformers_says(
    family: str,
    differs: dict[str, Any],
    rust_program: Callable[[str], Path],
    background: BackgroundLoop,
    tokenizer: Tokenizer,
    tmp_path: Path,
) -> None:
    rust_program("burn")
    model, reference = write_tiny(tmp_path, family, **differs)
    assert_same_likeliest(first_word(model, F32, background), reference.likeliest(PROMPT, 5), tokenizer)


def test_what_it_cannot_run_is_refused_with_a_sentence(
    rust_program: Callable[[str], Path], background: BackgroundLoop
) -> None:
    rust_program("burn")
    with pytest.raises(EngineUnavailable, match="runs the families llama, mistral and qwen2; this model is a mamba"):
        first_word(prepare("random:mamba-130m"), F32, background)
    with pytest.raises(EngineUnavailable, match=r"there is no device `abacus` in this build; it has: .*cpu"):
        first_word(prepare(), {"device": "abacus"}, background)


def test_a_wrong_setting_is_told_before_anything_starts() -> None:
    with pytest.raises(ValueError, match="`concurrency` is 1 or more"):
        BurnOptions(concurrency=0)
