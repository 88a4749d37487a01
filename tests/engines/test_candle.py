"""What only Candle has: quantised weights, GGUF files, and answers that are the same to the last bit in any company."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from engines.contract.base import EngineUnavailable
from engines.contract.registry import load_engine
from engines.models.fetch import fetch_model
from engines.process.child import ChildEngine
from engines.process.stream import ReceivedChunk
from tests.conftest import BackgroundLoop
from tests.support.rust_answers import PROMPT, answer, first_words
from tests.support.tiny_models import VOCABULARY, write_tiny_gguf


@pytest.fixture(scope="module")
def candle(rust_program: Callable[[str], Path], background: BackgroundLoop) -> Iterator[ChildEngine]:
    rust_program("candle")
    engine = load_engine("candle", fetch_model(), {"dtype": "float32", "device": "cpu"})
    background.run(engine.start())
    yield engine
    background.run(engine.stop())


def said(chunks: list[ReceivedChunk]) -> list[Any]:
    return [(chunk.text, chunk.tokens, chunk.logprobs) for chunk in chunks]


def test_who_joins_and_who_leaves_changes_nothing_for_the_others(
    candle: ChildEngine, prompts: list[tuple[int, ...]], background: BackgroundLoop
) -> None:
    """To the last bit of every log-probability, greedy and drawn."""
    settings = [
        {"max_tokens": 4 + 5 * at, "logprobs": 2, "temperature": 0.8 * (at % 2), "top_p": 0.9, "seed": at}
        for at in range(len(prompts))
    ]

    async def late(at: int) -> list[ReceivedChunk]:
        await asyncio.sleep(0.05 * at)
        return await answer(candle, prompts[at], **settings[at])

    async def each_alone() -> list[list[ReceivedChunk]]:
        return [await answer(candle, prompt, **setting) for prompt, setting in zip(prompts, settings, strict=True)]

    async def one_after_the_other() -> list[list[ReceivedChunk]]:
        return await asyncio.gather(*(late(at) for at in range(len(prompts))))

    together, alone = background.run(one_after_the_other()), background.run(each_alone())
    assert [said(chunks) for chunks in together] == [said(chunks) for chunks in alone]


def assert_near(chunk: ReceivedChunk, wanted: list[tuple[int, float]], tokenizer: Tokenizer, within: float) -> None:
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
    dtype, (chunk,) = first_words("candle", model, {"dtype": "gguf"}, PROMPT, background, logprobs=20)
    assert dtype == {"F32": "float32", "F16": "float16"}.get(kind, kind.lower())
    assert_near(chunk, reference.likeliest(PROMPT, VOCABULARY), tokenizer, within)


@pytest.mark.parametrize("dtype", ["bfloat16", "q8_0", "q4_0", "q4_1", "q4_k"])
def test_weights_are_rounded_while_loading(
    dtype: str, candle: ChildEngine, prompts: list[tuple[int, ...]], background: BackgroundLoop
) -> None:
    kept, (chunk,) = first_words("candle", fetch_model(), {"dtype": dtype}, prompts[5], background)
    assert (kept, chunk.text) == (dtype, " ")


def test_the_presets_run_with_random_weights(
    rust_program: Callable[[str], Path], prompts: list[tuple[int, ...]], background: BackgroundLoop
) -> None:
    rust_program("candle")
    kept, chunks = first_words("candle", fetch_model("random:qwen2.5-0.5b"), {"dtype": "q8_0"}, prompts[0], background)
    assert (kept, sum(chunk.tokens for chunk in chunks)) == ("q8_0", 1)


def test_what_it_cannot_run_is_refused_with_a_sentence(
    rust_program: Callable[[str], Path], background: BackgroundLoop, tmp_path: Path
) -> None:
    rust_program("candle")
    with pytest.raises(EngineUnavailable, match=r"candle knows the families llama, .* here, and this model is `mamba`"):
        first_words("candle", fetch_model("random:mamba-130m"), {}, PROMPT, background)
    with pytest.raises(EngineUnavailable, match="candle computes float16 on a GPU only; say dtype=bfloat16 on a CPU"):
        first_words("candle", fetch_model(), {"dtype": "float16"}, PROMPT, background)
    with pytest.raises(EngineUnavailable, match="built without it, or the machine has none"):
        first_words("candle", fetch_model(), {"device": "cuda:7"}, PROMPT, background)
