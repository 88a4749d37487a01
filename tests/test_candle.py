"""Candle against Transformers: the same 32-bit weights, so the same words and nearly the same logits; and what only
an engine with a batch and a process of its own can get wrong."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from reference import PROMPTS, Reference
from tiny_models import VOCABULARY, write_tiny, write_tiny_gguf
from tokenizers import Tokenizer

from conftest import BackgroundLoop
from engines import load_engine
from engines.base import BadRequest, Chunk, EngineCrashed, EngineUnavailable, GenerateRequest, Model
from engines.candle import CandleOptions
from engines.child import ChildEngine
from engines.models import prepare

TOKENS = 64
F32 = {"dtype": "float32", "device": "cpu"}


@pytest.fixture(scope="module")
def candle(rust_program: Callable[[str], Path], background: BackgroundLoop) -> Iterator[ChildEngine]:
    rust_program("candle")
    engine = load_engine("candle", prepare(), F32)
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


def said(chunks: list[Chunk]) -> list[Any]:
    return [(chunk.text, chunk.tokens, chunk.logprobs) for chunk in chunks]


def test_ten_greedy_answers_at_once_are_those_of_transformers(
    candle: ChildEngine,
    transformers: Reference,
    prompts: list[tuple[int, ...]],
    tokenizer: Tokenizer,
    background: BackgroundLoop,
) -> None:
    async def all_at_once() -> list[list[Chunk]]:
        return await asyncio.gather(*(answer(candle, prompt, logprobs=0) for prompt in prompts))

    ids = {tokenizer.decode([id], False): id for id in range(tokenizer.get_vocab_size())}
    for prompt, chunks in zip(prompts, background.run(all_at_once()), strict=True):
        guess = [ids[chunk.logprobs[0].token] for chunk in chunks]  # its text alone might be cut into other tokens
        wanted = transformers.greedy(prompt, TOKENS, guess)
        assert sum(chunk.tokens for chunk in chunks) == TOKENS
        assert text(chunks) == tokenizer.decode(wanted)


def assert_same_likeliest(chunk: Chunk, wanted: list[tuple[int, float]], tokenizer: Tokenizer, within: float) -> None:
    top = chunk.logprobs[0].top
    assert [token for token, _ in top] == [tokenizer.decode([id], False) for id, _ in wanted]
    assert [logprob for _, logprob in top] == pytest.approx([logprob for _, logprob in wanted], abs=within)


def test_the_five_likeliest_have_the_probabilities_of_transformers(
    candle: ChildEngine,
    transformers: Reference,
    prompts: list[tuple[int, ...]],
    tokenizer: Tokenizer,
    background: BackgroundLoop,
) -> None:
    for prompt in prompts:
        (chunk,) = background.run(answer(candle, prompt, max_tokens=1, logprobs=5))
        assert_same_likeliest(chunk, transformers.likeliest(prompt, 5), tokenizer, 1e-3)


def test_a_prompt_longer_than_one_step_is_read_in_pieces(
    candle: ChildEngine, transformers: Reference, tokenizer: Tokenizer, background: BackgroundLoop
) -> None:
    """300 tokens are two steps of 256: positions, masks and the growing cache have to fit together."""
    prompt = tuple(100 + (37 * at) % 40_000 for at in range(300))
    (chunk,) = background.run(answer(candle, prompt, max_tokens=1, logprobs=5))
    assert_same_likeliest(chunk, transformers.likeliest(prompt, 5), tokenizer, 1e-3)


def test_who_joins_and_who_leaves_changes_nothing_for_the_others(
    candle: ChildEngine, prompts: list[tuple[int, ...]], background: BackgroundLoop
) -> None:
    """To the last bit of every log-probability, greedy and drawn."""
    settings = [
        {"max_tokens": 4 + 5 * at, "logprobs": 2, "temperature": 0.8 * (at % 2), "top_p": 0.9, "seed": at}
        for at in range(len(prompts))
    ]

    async def late(at: int) -> list[Chunk]:
        await asyncio.sleep(0.05 * at)
        return await answer(candle, prompts[at], **settings[at])

    async def each_alone() -> list[list[Chunk]]:
        return [await answer(candle, prompt, **setting) for prompt, setting in zip(prompts, settings, strict=True)]

    async def one_after_the_other() -> list[list[Chunk]]:
        return await asyncio.gather(*(late(at) for at in range(len(prompts))))

    together, alone = background.run(one_after_the_other()), background.run(each_alone())
    assert [said(chunks) for chunks in together] == [said(chunks) for chunks in alone]


def test_a_seed_decides_and_the_nucleus_may_be_one_token(
    candle: ChildEngine, prompts: list[tuple[int, ...]], background: BackgroundLoop
) -> None:
    def drawn(**settings: Any) -> str:
        return text(background.run(answer(candle, prompts[0], max_tokens=16, **settings)))

    assert drawn(temperature=1.0, seed=1) == drawn(temperature=1.0, seed=1)
    assert len({drawn(temperature=1.0, seed=seed) for seed in range(3)}) == 3
    assert len({drawn(temperature=1.0) for _ in range(3)}) == 3, "without a seed every answer is its own"
    assert drawn(temperature=1.0, top_p=1e-6) == drawn()


def test_a_cancelled_answer_ends_within_a_token_and_the_others_go_on(
    candle: ChildEngine, prompts: list[tuple[int, ...]], background: BackgroundLoop
) -> None:
    async def one_leaves() -> tuple[int, str]:
        other = asyncio.ensure_future(answer(candle, prompts[1]))
        stream = candle.generate(GenerateRequest("", prompts[0], max_tokens=4000, ignore_eos=True))
        for _ in range(5):
            await anext(stream)
        stream.cancel()
        late = sum([chunk.tokens async for ready in stream for chunk in ready])
        assert stream.finish_reason == "cancelled"
        return late, text(await other)

    late, other = background.run(one_leaves())
    assert late <= 3, "one that was under way, and room for a busy machine"
    assert other == text(background.run(answer(candle, prompts[1])))


def test_a_killed_engine_fails_its_requests_clearly_and_comes_back(
    candle: ChildEngine, prompts: list[tuple[int, ...]], background: BackgroundLoop
) -> None:
    async def crash() -> list[BaseException]:
        answers = [asyncio.ensure_future(answer(candle, prompt, max_tokens=4000)) for prompt in prompts[:3]]
        await asyncio.sleep(0.3)
        assert candle.pid is not None
        os.kill(candle.pid, signal.SIGKILL)
        failed = await asyncio.gather(*answers, return_exceptions=True)
        async with asyncio.timeout(60):
            while candle.state != "ready":
                await asyncio.sleep(0.05)
        return [one for one in failed if isinstance(one, BaseException)]

    before = text(background.run(answer(candle, prompts[0], max_tokens=8)))
    errors = background.run(crash())
    assert [type(error) for error in errors] == [EngineCrashed] * 3
    assert "ended while this request was running: it was killed by SIGKILL" in str(errors[0])
    assert text(background.run(answer(candle, prompts[0], max_tokens=8))) == before


def test_strange_prompts_are_refused_with_a_sentence(candle: ChildEngine, background: BackgroundLoop) -> None:
    with pytest.raises(BadRequest, match="the prompt has 8192 tokens; the model's context holds 8192"):
        background.run(answer(candle, (100,) * 8192))
    with pytest.raises(BadRequest, match="token 49152 is none of the model's 49152"):
        background.run(answer(candle, (49152,)))


def first_words(
    model: Model, options: dict[str, str], prompt: tuple[int, ...], background: BackgroundLoop, logprobs: int = 5
) -> tuple[str, list[Chunk]]:
    """How the engine says it keeps the weights, and its answer of one token."""

    async def ask() -> tuple[str, list[Chunk]]:
        engine = load_engine("candle", model, {"device": "cpu"} | options)
        info = await engine.start()
        try:
            return info.dtype, await answer(engine, prompt, max_tokens=1, logprobs=logprobs)
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
        pytest.param("phi3", {"sliding_window": None}, id="Phi-3, with joined matrices"),
        pytest.param("qwen2", {}, id="Qwen2, with biases"),
        pytest.param("qwen3", {"head_dim": 32}, id="Qwen3, with norms in its heads"),
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
    rust_program("candle")
    model, reference = write_tiny(tmp_path, family, **differs)
    dtype, (chunk,) = first_words(model, {"dtype": "float32"}, PROMPT, background)
    assert dtype == "float32"
    assert_same_likeliest(chunk, reference.likeliest(PROMPT, 5), tokenizer, 1e-3)


def assert_near(chunk: Chunk, wanted: list[tuple[int, float]], tokenizer: Tokenizer, within: float) -> None:
    """Likely tokens are as likely as they should be; who comes first may change with the rounding."""
    texts = Counter(tokenizer.decode([id], False) for id, _ in wanted)
    logprobs = {tokenizer.decode([id], False): logprob for id, logprob in wanted}
    told = {token: logprob for token, logprob in chunk.logprobs[0].top if texts[token] == 1}
    assert len(told) >= 5
    assert told == pytest.approx({token: logprobs[token] for token in told}, abs=within)


@pytest.mark.parametrize(
    ("kind", "within"),
    [
        pytest.param("F32", 1e-3, id="floats as they are"),
        pytest.param("F16", 1e-3, id="half floats become floats"),
        pytest.param("Q8_0", 0.2, id="bytes"),
        pytest.param("Q4_0", 0.2, id="four bits around a middle"),
        pytest.param("Q4_1", 0.2, id="four bits above the least"),
        pytest.param("Q4_K", 0.2, id="four bits in blocks of blocks"),
        pytest.param("Q5_0", 0.2, id="five bits, by candle's own product"),
    ],
)
def test_a_gguf_file_says_what_its_own_numbers_say_in_transformers(
    kind: str,
    within: float,
    rust_program: Callable[[str], Path],
    background: BackgroundLoop,
    tokenizer: Tokenizer,
    tmp_path: Path,
) -> None:
    """Quantised products round the tokens too, each block of 32 numbers to bytes."""
    rust_program("candle")
    model, reference = write_tiny_gguf(tmp_path, kind)
    dtype, (chunk,) = first_words(model, {"dtype": "gguf"}, PROMPT, background, logprobs=20)
    assert dtype == {"F32": "float32", "F16": "float16"}.get(kind, kind.lower())
    assert_near(chunk, reference.likeliest(PROMPT, VOCABULARY), tokenizer, within)


@pytest.mark.parametrize("dtype", ["bfloat16", "q8_0", "q4_0", "q4_1", "q4_k"])
def test_weights_are_rounded_while_loading(
    dtype: str, candle: ChildEngine, prompts: list[tuple[int, ...]], background: BackgroundLoop
) -> None:
    kept, (chunk,) = first_words(prepare(), {"dtype": dtype}, prompts[5], background)
    assert (kept, chunk.text) == (dtype, " ")


def test_the_presets_run_with_random_weights(
    rust_program: Callable[[str], Path], prompts: list[tuple[int, ...]], background: BackgroundLoop
) -> None:
    rust_program("candle")
    kept, chunks = first_words(prepare("random:qwen2.5-0.5b"), {"dtype": "q8_0"}, prompts[0], background)
    assert (kept, sum(chunk.tokens for chunk in chunks)) == ("q8_0", 1)


def test_what_it_cannot_run_is_refused_with_a_sentence(
    rust_program: Callable[[str], Path], background: BackgroundLoop, tmp_path: Path
) -> None:
    rust_program("candle")
    with pytest.raises(EngineUnavailable, match=r"candle knows the families llama, .* here, and this model is `mamba`"):
        first_words(prepare("random:mamba-130m"), {}, PROMPT, background)
    with pytest.raises(EngineUnavailable, match="candle computes float16 on a GPU only; say dtype=bfloat16 on a CPU"):
        first_words(prepare(), {"dtype": "float16"}, PROMPT, background)
    with pytest.raises(EngineUnavailable, match="built without it, or the machine has none"):
        first_words(prepare(), {"device": "cuda:7"}, PROMPT, background)


def test_a_wrong_setting_is_told_before_anything_starts() -> None:
    with pytest.raises(ValueError, match="`concurrency` is 1 or more"):
        CandleOptions(concurrency=0)
