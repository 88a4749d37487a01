"""mistral.rs: it gets the very tokens that the server counted, and every token it makes is counted once."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engines.contract.base import Chunk, GenerateRequest, Model
from engines.contract.errors import BadRequest, EngineUnavailable
from engines.mistralrs import MistralRsEngine, MistralRsOptions, built_for
from engines.models.fetch import fetch_model
from engines.text.detokenize import tokenizer_of

QUESTION = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
EMOJI = "<|im_start|>user\nRepeat exactly: 🎉🚀 日本語 é<|im_end|>\n<|im_start|>assistant\n"


class Loaded:
    """The engine in this process; `usages` are the counts that mistral.rs itself gave, prompt and answer."""

    def __init__(self, **options) -> None:  # type: ignore[no-untyped-def]
        model = fetch_model()
        self.engine = MistralRsEngine(model, MistralRsOptions(**options))
        self.info = self.engine.load()
        self.tokenizer = tokenizer_of(model.folder)
        self.usages: list[tuple[int, int]] = []
        chunks = self.engine._chunks
        self.engine._chunks = lambda answer, stops: chunks(self._overheard(answer), stops)  # type: ignore[method-assign]

    def _overheard(self, answer: Iterator[Any]) -> Iterator[Any]:
        for piece in answer:
            if piece.usage is not None:
                self.usages.append((piece.usage.prompt_tokens, piece.usage.completion_tokens))
            yield piece

    def request(self, prompt: str = QUESTION, **settings) -> GenerateRequest:  # type: ignore[no-untyped-def]
        ids = tuple(self.tokenizer.encode(prompt).ids)
        return GenerateRequest(prompt, ids, **({"max_tokens": 24} | settings))

    def chunks(self, prompt: str = QUESTION, **settings) -> list[Chunk]:  # type: ignore[no-untyped-def]
        return list(self.engine.generate_blocking(self.request(prompt, **settings)))


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return Loaded(concurrency=8)


@pytest.mark.parametrize(
    "prompt",
    [
        pytest.param(QUESTION, id="a chat, with its special tokens"),
        pytest.param("  two spaces before and line ends after\n\n", id="spaces at both ends are part of the prompt"),
        pytest.param("naïve 日本語 🚀 {{ not a template }} {% nor this %}", id="text that looks like a template"),
        pytest.param("word " * 70, id="a long one"),
    ],
)
def test_it_gets_the_very_tokens_that_the_server_counted(loaded: Loaded, prompt: str) -> None:
    request = loaded.request(prompt, max_tokens=1)
    list(loaded.engine.generate_blocking(request))
    assert loaded.usages[-1] == (len(request.prompt_token_ids), 1)


def test_token_ids_that_no_text_stands_for_are_refused(loaded: Loaded) -> None:
    letters = [id for letter in "Hi" for id in loaded.tokenizer.encode(letter).ids]
    request = GenerateRequest("Hi", tuple(letters), max_tokens=1)  # the tokenizer makes one token of both
    with pytest.raises(BadRequest, match="has other ids; send text instead of token ids"):
        list(loaded.engine.generate_blocking(request))


@pytest.mark.parametrize(
    ("prompt", "settings"),
    [
        pytest.param(QUESTION, {}, id="an answer that ends by itself"),
        pytest.param(QUESTION, {"max_tokens": 1}, id="one token"),
        pytest.param(EMOJI, {"max_tokens": 12}, id="characters of several tokens each"),
        pytest.param(EMOJI, {"max_tokens": 11, "ignore_eos": True}, id="the same, cut off within a character or not"),
        pytest.param("😀😁😂🤣😃😄😅" * 3, {"max_tokens": 12}, id="nothing but such characters"),
    ],
)
def test_every_token_is_counted_once(loaded: Loaded, prompt: str, settings: dict[str, Any]) -> None:
    chunks = loaded.chunks(prompt, **settings)
    assert sum(chunk.tokens for chunk in chunks) == loaded.usages[-1][1]
    assert all(chunk.tokens >= 1 for chunk in chunks[:-1])
    assert max(chunk.tokens for chunk in chunks) <= 4, "tokens are counted with the character that they made"


def test_an_answer_begins_with_the_white_space_that_the_model_gives_it(loaded: Loaded) -> None:
    """mistral.rs itself cuts it off: every completion of plain text would differ from those of other engines."""
    answers = [
        "".join(c.text for c in loaded.chunks(prompt, max_tokens=3))
        for prompt in ("The capital of France is", "def f(n):")
    ]
    assert answers[0].startswith(" Paris.")
    assert answers[1].startswith("\n    ")


def test_sampling_varies(loaded: Loaded) -> None:
    answers = {"".join(c.text for c in loaded.chunks("Random words:", temperature=1.5, max_tokens=6)) for _ in range(3)}
    assert len(answers) > 1


def test_requests_share_a_batch(loaded: Loaded) -> None:
    started: list[float] = []
    ended: list[float] = []

    def ask() -> None:
        for ordinal, _ in enumerate(loaded.engine.generate_blocking(loaded.request(max_tokens=12, ignore_eos=True))):
            if ordinal == 0:
                started.append(time.monotonic())
        ended.append(time.monotonic())

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ended) == 4
    # Not all of them: one that arrives after a step has another length, and waits for its group.
    assert sorted(started)[1] < min(ended), "two begin before the first one ends"


@pytest.mark.parametrize("dtype", ["q8_0", "q4_0"])
def test_a_quantised_model_runs_one_request_at_a_time(dtype: str) -> None:
    quantised = Loaded(dtype=dtype, concurrency=8)
    info = quantised.info
    assert (info.dtype, info.batching, info.max_concurrency) == (dtype, "none", 1)
    assert "Paris" in "".join(chunk.text for chunk in quantised.chunks())


def test_what_a_wheel_was_built_for_is_read_from_it(tmp_path: Path) -> None:
    """Wheels for CUDA have the name of the one for the CPU; the one that is installed here is for the CPU."""
    assert MistralRsEngine.device_of(MistralRsOptions()) == "cpu"
    extensions = {
        "cpu": b"\0candle-core/src/dummy_cuda_backend.rs\0candle-core/src/dummy_metal_backend.rs\0",
        "cuda": b"\0candle-core/src/cuda_backend/mod.rs\0candle-core/src/dummy_metal_backend.rs\0",
        "metal": b"\0candle-core/src/dummy_cuda_backend.rs\0candle-core/src/metal_backend/mod.rs\0",
    }
    for device, code in extensions.items():
        (tmp_path / f"{device}.so").write_bytes(code)
        assert built_for(tmp_path / f"{device}.so") == device


def test_an_architecture_it_does_not_know_is_refused_with_those_it_knows(tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "config.json").write_text('{"architectures": ["MambaForCausalLM"]}')
    (tmp_path / "tokenizer.json").write_bytes((fetch_model().folder / "tokenizer.json").read_bytes())
    with pytest.raises(EngineUnavailable, match="mistralrs cannot run a MambaForCausalLM; it runs LlamaForCausalLM"):
        MistralRsEngine(Model("mamba", tmp_path), MistralRsOptions()).load()
