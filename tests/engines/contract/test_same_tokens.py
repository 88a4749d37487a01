"""One model that every engine runs: from the same weights and the same prompt they generate the same tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engines.contract.base import GenerateRequest, Model
from engines.contract.registry import load_engine
from engines.models.fetch import fetch_model
from engines.models.random_weights import with_weights
from engines.rust.programs import PROGRAMS
from servers.openai.prompts import load_tokenizer
from tests.conftest import BackgroundLoop
from tests.support.engines.reference import Reference

pytestmark = pytest.mark.xdist_group("rust")

TOKENS = 24
FEW_SHAPES = {"dtype": "float32", "batches": "1,4", "lengths": "1024"}  # of which preparing one takes seconds
VLLM = {"dtype": "float32", "eager": "yes", "kv_gib": "0.5", "context": "4096"}  # compiling takes a minute


@pytest.fixture(scope="module")
def model() -> Model:
    """Llama 3.2 in small: its rotary scaling, grouped heads, tied embeddings and vocabulary. The same file for all."""
    return with_weights(fetch_model("random:llama-3.2-tiny"))


@pytest.fixture(scope="module")
def question(model: Model) -> GenerateRequest:
    """In the chat template, because lm.rs reads no other prompts."""
    tokenizer = load_tokenizer(model)
    text = tokenizer.render([{"role": "user", "content": "Where does the river that passes the mill come from?"}])
    ids = tokenizer.encode(text, special=False, limit=4096)
    return GenerateRequest(text, tuple(ids), TOKENS, ignore_eos=True)


@pytest.fixture(scope="module")
def expected(model: Model, question: GenerateRequest) -> str:
    ids = Reference.of(model.folder).greedy(question.prompt_token_ids, TOKENS, ())
    assert len(set(ids)) > TOKENS / 2, "an answer that repeats itself would compare nothing"
    return load_tokenizer(model).decode(ids)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        pytest.param("transformers", {"dtype": "float32"}, id="transformers"),
        pytest.param("transformers", {"dtype": "float32", "draft": "ngram"}, id="transformers, assisted"),
        pytest.param("transformers-batching", {"dtype": "float32"}, id="transformers-batching"),
        pytest.param("pytorch-baseline", {}, id="pytorch-baseline"),
        pytest.param("torch-jit", FEW_SHAPES, id="torch-jit"),
        pytest.param("torch-compile", FEW_SHAPES, id="torch-compile"),
        pytest.param("candle", {"dtype": "float32"}, id="candle-transformers"),
        pytest.param("candle", {"dtype": "float32", "concurrency": "4"}, id="candle, in a batch"),
        pytest.param("burn", {"dtype": "float32"}, id="burn"),
        pytest.param("mistralrs", {"dtype": "float32"}, id="mistralrs"),
        pytest.param("vllm", VLLM, id="vllm", marks=pytest.mark.own_environment),
        pytest.param(
            "vllm", VLLM | {"speculative_tokens": "3"}, id="vllm, guessing", marks=pytest.mark.own_environment
        ),
        pytest.param("lmrs", {"dtype": "float32"}, id="lmrs", marks=pytest.mark.lmrs),
    ],
)
def test_every_engine_generates_the_same_tokens(
    name: str,
    options: dict[str, str],
    model: Model,
    question: GenerateRequest,
    expected: str,
    background: BackgroundLoop,
    rust_program: Callable[[str], Path],
) -> None:
    if name in PROGRAMS:
        rust_program(name)

    async def answer() -> str:
        engine = load_engine(name, model, options)
        await engine.start()
        try:
            stream = engine.generate(question)
            return "".join([chunk.text async for ready in stream for chunk in ready])
        finally:
            await engine.stop()

    assert background.run(answer()).lstrip() == expected.lstrip()  # mistral.rs drops a space at the beginning
