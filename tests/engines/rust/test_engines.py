"""The engines written in Rust against Transformers: the same 32-bit weights, so the same words and nearly the same
logits; and what only an engine with a batch and a process of its own can get wrong."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from engines.contract.base import GenerateRequest, Model
from engines.contract.errors import BadRequest, EngineUnavailable
from engines.models.fetch import fetch_model
from engines.models.presets import LLAMA_3_ROPE
from engines.process.engine_loading import load_engine
from engines.process.supervisor import ChildEngine
from engines.text.detokenize import tokenizer_of
from tests.conftest import BackgroundLoop
from tests.support.engines.reference import PROMPTS, Reference
from tests.support.engines.rust_answers import PROMPT, answer, assert_same_likeliest, first_words, text
from tests.support.engines.small_model import VOCABULARY, small_model
from tests.support.engines.tiny_models import write_tiny

NAMES = [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in ("candle", "burn")]


@pytest.fixture(scope="session")
def model() -> Model:
    return small_model()


@pytest.fixture(scope="session")
def vocabulary(model: Model) -> Tokenizer:
    return Tokenizer.from_file(str(model.folder / "tokenizer.json"))


@pytest.fixture(scope="session")
def prompts(vocabulary: Tokenizer) -> list[tuple[int, ...]]:
    return [tuple(vocabulary.encode(prompt).ids) for prompt in PROMPTS]


@pytest.fixture(scope="session")
def reference(model: Model) -> Reference:
    return Reference.of(model.folder)


@pytest.fixture(scope="module", params=NAMES)
def engine(
    request: pytest.FixtureRequest, model: Model, rust_program: Callable[[str], Path], background: BackgroundLoop
) -> Iterator[ChildEngine]:
    rust_program(request.param)
    options = {"dtype": "float32", "device": "cpu", "concurrency": "16", "context": "8192"}
    engine = load_engine(request.param, model, options)
    background.run(engine.start())
    yield engine
    background.run(engine.stop())


def test_a_prompt_longer_than_one_step_is_read_in_pieces(
    engine: ChildEngine, reference: Reference, vocabulary: Tokenizer, background: BackgroundLoop
) -> None:
    """The first step of 300 tokens has 64: positions, masks and the growing cache have to fit together."""
    prompt = tuple(100 + (37 * at) % 15_000 for at in range(300))
    (chunk,) = background.run(answer(engine, prompt, max_tokens=1, logprobs=5))
    assert_same_likeliest(chunk, reference.likeliest(prompt, 5), vocabulary)


def test_a_seed_decides_and_the_nucleus_may_be_one_token(
    engine: ChildEngine, prompts: list[tuple[int, ...]], background: BackgroundLoop
) -> None:
    def drawn(**settings: Any) -> str:
        return text(background.run(answer(engine, prompts[0], max_tokens=16, **settings)))

    assert drawn(temperature=1.0, seed=1) == drawn(temperature=1.0, seed=1)
    assert len({drawn(temperature=1.0, seed=seed) for seed in range(3)}) == 3
    assert len({drawn(temperature=1.0) for _ in range(3)}) == 3, "without a seed every answer is its own"
    assert drawn(temperature=1.0, top_p=1e-6) == drawn()


def test_a_cancelled_answer_ends_within_a_token_and_the_others_go_on(
    engine: ChildEngine, prompts: list[tuple[int, ...]], background: BackgroundLoop
) -> None:
    async def one_leaves() -> tuple[int, str]:
        others = [asyncio.ensure_future(answer(engine, prompt)) for prompt in prompts[1:9]]  # so that a step takes long
        stream = engine.generate(GenerateRequest("", prompts[0], max_tokens=4000, ignore_eos=True))
        for _ in range(5):
            await anext(stream)
        stream.cancel()
        late = sum([chunk.tokens async for ready in stream for chunk in ready])
        assert stream.finish_reason == "cancelled"
        return late, text((await asyncio.gather(*others))[0])

    alone = text(background.run(answer(engine, prompts[1])))
    late, others = zip(*(background.run(one_leaves()) for _ in range(3)), strict=True)
    assert min(late) <= 3, "the one that was under way, and some more on a busy machine"
    assert set(others) == {alone}


def test_strange_prompts_are_refused_with_a_sentence(engine: ChildEngine, background: BackgroundLoop) -> None:
    with pytest.raises(BadRequest, match="the prompt has 8192 tokens; the context is 8192 tokens"):
        background.run(answer(engine, (100,) * 8192))
    with pytest.raises(BadRequest, match=f"token {VOCABULARY} is not in the model's vocabulary of {VOCABULARY}"):
        background.run(answer(engine, (VOCABULARY,)))


LLAMA_3 = LLAMA_3_ROPE | {"rope_theta": 500_000.0, "factor": 8.0, "original_max_position_embeddings": 16}


BOTH = [
    pytest.param("llama", {}, id="Llama, with a matrix of its own at the end"),
    pytest.param("llama", {"rope_parameters": LLAMA_3}, id="Llama 3.1, with stretched positions"),
    pytest.param("llama", {"tie_word_embeddings": True}, id="Llama, with the embeddings twice"),
    pytest.param("mistral", {"head_dim": 32, "sliding_window": None}, id="Mistral, with narrower heads"),
    pytest.param("qwen2", {}, id="Qwen2, with biases"),
]
CANDLES = [
    pytest.param("phi3", {"sliding_window": None}, id="Phi-3, with joined matrices"),
    pytest.param("qwen3", {"head_dim": 32}, id="Qwen3, with norms in its heads"),
]
CANDLE_TRANSFORMERS = [  # one request at a time
    pytest.param("llama", {}, id="Llama"),
    pytest.param("mistral", {"head_dim": 32, "sliding_window": 32}, id="Mistral, up to its sliding window"),
    pytest.param("phi3", {"sliding_window": None}, id="Phi-3"),
    pytest.param("qwen2", {}, id="Qwen2"),
    pytest.param("qwen3", {"head_dim": 32}, id="Qwen3"),
    pytest.param("gemma", {"head_dim": 64}, id="Gemma"),
    pytest.param("gemma2", {"head_dim": 64, "query_pre_attn_scalar": 64}, id="Gemma 2"),
    pytest.param("mamba", {"state_size": 16}, id="Mamba"),
]
TOGETHER = {"concurrency": "2"}


@pytest.mark.parametrize(
    ("name", "options", "family", "differs"),
    [
        pytest.param(name, options, *case.values, id=f"{name}: {case.id}", marks=pytest.mark.xdist_group(name))
        for name, options, cases in (
            ("candle", TOGETHER, BOTH + CANDLES),
            ("candle", {}, CANDLE_TRANSFORMERS),
            ("burn", TOGETHER, BOTH),
        )
        for case in cases
    ],
)
async def test_every_family_says_what_transformers_says(
    name: str,
    options: dict[str, str],
    family: str,
    differs: dict[str, Any],
    rust_program: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    rust_program(name)
    model, reference = write_tiny(tmp_path, family, **differs)
    dtype, (chunk,) = await first_words(name, model, {"dtype": "float32"} | options, PROMPT)
    assert dtype == "float32"
    assert_same_likeliest(chunk, reference.likeliest(PROMPT, 5), tokenizer_of(model.folder))


@pytest.mark.parametrize("name", NAMES)
async def test_16_bits_hold_activations_whose_squares_they_do_not(
    name: str, rust_program: Callable[[str], Path], tmp_path: Path
) -> None:
    """Trained models have activations of hundreds, whose squares are beyond the largest 16-bit number, 65 504."""
    rust_program(name)
    model, reference = write_tiny(tmp_path, "llama", embedding_scale=3000)
    dtype, (chunk,) = await first_words(name, model, {"dtype": "float16"} | TOGETHER, PROMPT)
    (_, logprob), *_ = reference.likeliest(PROMPT, 1)
    assert dtype == "float16"
    assert chunk.logprobs[0].logprob == pytest.approx(logprob, abs=0.05)


REFUSED: list[tuple[str, str, dict[str, str], str]] = [
    ("candle", "random:gpt2", {}, r"candle runs the families llama, .* here, and this model is a gpt2"),
    ("candle", "random:mamba-130m", {"concurrency": "2"}, "mamba one request at a time"),
    ("candle", "smollm2-135m", {"dtype": "gguf"}, "is not a GGUF file"),
    ("candle", "smollm2-135m", {"device": "cuda:7"}, "built without it, or the machine has none"),
    ("burn", "random:mamba-130m", {}, "the families llama, mistral and qwen2; this model is a mamba"),
    ("burn", "smollm2-135m", {"device": "abacus"}, r"no device `abacus` in this build; it has: .*cpu"),
]


@pytest.mark.parametrize(
    ("name", "model", "options", "sentence"),
    [pytest.param(*case, id=f"{case[0]}: {case[3]}", marks=pytest.mark.xdist_group(case[0])) for case in REFUSED],
)
async def test_what_it_cannot_run_is_refused_with_a_sentence(
    name: str, model: str, options: dict[str, str], sentence: str, rust_program: Callable[[str], Path]
) -> None:
    rust_program(name)
    with pytest.raises(EngineUnavailable, match=sentence):
        await first_words(name, fetch_model(model), options, PROMPT)
