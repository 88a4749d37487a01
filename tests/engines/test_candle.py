"""What only Candle has: candle-transformers' families, quantised weights and GGUF files."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from engines.contract.errors import EngineUnavailable
from engines.models.fetch import fetch_model
from engines.models.to_gguf import Format, gguf_of
from engines.process.engine_loading import load_engine
from engines.process.stream import ReceivedChunk
from engines.text.detokenize import tokenizer_of
from tests.support.engines.reference import Reference
from tests.support.engines.rust_answers import PROMPT, answer, first_words, text
from tests.support.engines.small_model import small_model
from tests.support.engines.tiny_models import VOCABULARY, write_tiny

pytestmark = pytest.mark.xdist_group("candle")


@pytest.fixture(scope="module", autouse=True)
def candle(rust_program: Callable[[str], Path]) -> Path:
    return rust_program("candle")


async def test_answers_in_a_full_cache_are_those_of_an_empty_one() -> None:
    """130 tokens of keys and values are wanted and 60 allowed: requests wait, and some are computed again."""
    model = small_model()
    prompts = [tuple((37 * at + 991 * number) % 15_000 for at in range(10)) for number in range(5)]
    options = {"dtype": "float32", "device": "cpu", "concurrency": "8"}

    async def answers(at_once: bool, **more: str) -> tuple[int, list[str]]:
        engine = load_engine("candle", model, options | more)
        info = await engine.start()
        try:
            asked = [answer(engine, prompt, max_tokens=16) for prompt in prompts]
            chunks = await asyncio.gather(*asked) if at_once else [await one for one in asked]
            return info.context_length, [text(each) for each in chunks]
        finally:
            await engine.stop()

    context_length, together = await answers(True, kv_tokens="60")
    _, alone = await answers(False)
    assert context_length == 60
    assert len(set(alone)) == 5
    assert sum(one == other for one, other in zip(together, alone, strict=True)) >= 4, "a tie may fall either way"


async def test_one_request_at_a_time_is_candle_transformers(prompts: list[tuple[int, ...]]) -> None:
    engine = load_engine("candle", fetch_model(), {"device": "cpu"})
    info = await engine.start()
    try:
        said = text(await answer(engine, prompts[0], max_tokens=16))
    finally:
        await engine.stop()
    assert (info.dtype, info.batching, info.max_concurrency) == ("float32", "none", 1)
    assert info.options["decoder"] == "candle-transformers llama"
    assert said.startswith(" a wise old woman named Elara")


def assert_near(chunk: ReceivedChunk, wanted: list[tuple[int, float]], tokenizer: Tokenizer, within: float) -> None:
    """Likely tokens are as likely as they should be; who comes first may change with the rounding."""
    texts = Counter(tokenizer.decode([id], False) for id, _ in wanted)
    logprobs = {tokenizer.decode([id], False): logprob for id, logprob in wanted}
    told = {token: logprob for token, logprob, _ in chunk.logprobs[0].top if texts[token] == 1}
    assert len(told) >= 5
    assert told == pytest.approx({token: logprobs[token] for token in told}, abs=within)


@pytest.mark.parametrize(
    ("format", "of_file", "within"),
    [
        pytest.param("float32", True, 1e-3, id="floats as they are"),
        pytest.param("float16", True, 1e-3, id="half floats"),
        pytest.param("q8_0", True, 0.3, id="bytes"),
        pytest.param("q4_0", True, 0.3, id="four bits"),
        *(pytest.param(dtype, False, 0.3, id=f"{dtype} while loading") for dtype in ("bfloat16", "float16", "q8_0")),
    ],
)
async def test_rounded_weights_say_in_candle_what_they_say_in_transformers(
    format: Format, of_file: bool, within: float, tmp_path: Path
) -> None:
    """Those of a GGUF file, or rounded while loading as the package of GGUF rounds them. Quantised products round the
    tokens too, each block of 32 numbers to bytes."""
    model, _ = write_tiny(tmp_path, "llama")
    file = gguf_of(model, format)
    options: dict[str, str] = {} if of_file else {"dtype": format}
    given = replace(model, gguf=file) if of_file else model
    dtype, (chunk,) = await first_words("candle", given, options, PROMPT, logprobs=20)
    assert dtype == format
    assert_near(chunk, Reference.of_gguf(file).likeliest(PROMPT, VOCABULARY), tokenizer_of(model.folder), within)


async def test_a_width_that_blocks_do_not_divide_is_refused_with_a_sentence(tmp_path: Path) -> None:
    model, _ = write_tiny(tmp_path, "llama", hidden_size=48)
    with pytest.raises(EngineUnavailable, match=r"q8_0 needs .* blocks of 32, and this model has 48; use dtype"):
        await first_words("candle", model, {"dtype": "q8_0"}, PROMPT)


async def test_the_presets_run_with_random_weights(prompts: list[tuple[int, ...]]) -> None:
    kept, chunks = await first_words("candle", fetch_model("random:llama-3.2-tiny"), {"dtype": "q8_0"}, prompts[0])
    assert (kept, sum(chunk.tokens for chunk in chunks)) == ("q8_0", 1)
