"""lm.rs against a stand-in that speaks its websocket; with `make test-lmrs` against the real program."""

import asyncio
import datetime
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from engines.contract.base import BadRequest, EngineCrashed, EngineUnavailable, GenerateRequest, Model
from engines.contract.registry import load_engine
from engines.lmrs.engine import LmrsEngine, LmrsOptions
from engines.lmrs.model_file import DType, check, converted, header, quantise, tensors
from engines.lmrs.tokens import AFTER_MESSAGE, BEFORE_MESSAGE, Alphabet
from engines.models.llama_chat import BEFORE_DATE
from engines.process.child import ChildEngine
from engines.process.stream import ReceivedChunk
from tests.conftest import BackgroundLoop
from tests.support.engines.lmrs_model import (
    ROPE,
    STAND_IN,
    VOCABULARY,
    write_bfloat16,
    write_program,
    write_stand_in,
    write_tiny_llama,
)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return write_tiny_llama(tmp_path_factory.mktemp("tiny-llama"))


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    program = write_stand_in(tmp_path_factory.mktemp("lmrs"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENGINEBENCH_LMRS", str(program))
        yield program


@pytest.fixture(scope="module")
def engine(tiny: Model, stand_in: Path, background: BackgroundLoop) -> Iterator[ChildEngine]:
    engine = load_engine("lmrs", tiny, {"dtype": "q8_0"})
    background.run(engine.start())
    yield engine
    background.run(engine.stop())


def chat(*message: int) -> tuple[int, ...]:
    """The ids of a user's message in Llama 3.2's chat template, as the server renders it today."""
    return (*BEFORE_DATE, *TODAY, *BEFORE_MESSAGE, *message, *AFTER_MESSAGE)


TODAY: tuple[int, ...] = ()


@pytest.fixture(scope="module", autouse=True)
def alphabet(tiny: Model) -> Alphabet:
    global TODAY
    from tokenizers import Tokenizer

    found = Alphabet.of(
        Tokenizer.from_file(str(tiny.folder / "tokenizer.json")), VOCABULARY, datetime.datetime.now().date()
    )
    TODAY = found.date
    return found


def ask(
    engine: ChildEngine, background: BackgroundLoop, ids: tuple[int, ...], **settings: Any
) -> tuple[list[ReceivedChunk], str | None]:
    async def answer() -> tuple[list[ReceivedChunk], str | None]:
        stream = engine.generate(GenerateRequest("", ids, **({"max_tokens": 8} | settings)))
        return [chunk async for ready in stream for chunk in ready], stream.finish_reason

    return background.run(answer())


def test_it_describes_itself(engine: ChildEngine) -> None:
    info = engine.info
    assert info is not None
    assert (info.version, info.dtype, info.max_concurrency, info.batching) == ("1.0", "q8_0", 1, "none")
    assert (info.context_length, info.features) == (8192, ("stop", "ignore_eos"))


# The stand-in repeats the message's tokens. Those from 1000 to 1009 end its answer after so many of them.


def test_an_answer_ends_at_the_end_of_text(engine: ChildEngine, background: BackgroundLoop) -> None:
    chunks, finish = ask(engine, background, chat(1003, 400))
    assert ("".join(chunk.text for chunk in chunks), sum(chunk.tokens for chunk in chunks)) == (" <1003>" * 3, 4), (
        "the end of text is the fourth"
    )
    assert finish == "stop"


def test_an_answer_ends_at_its_limit_though_lmrs_continues(engine: ChildEngine, background: BackgroundLoop) -> None:
    chunks, finish = ask(engine, background, chat(400, 500), max_tokens=5)
    assert ("".join(chunk.text for chunk in chunks), finish) == (" <400> <500> <400> <500> <400>", "length")


def test_the_end_of_text_can_be_ignored(engine: ChildEngine, background: BackgroundLoop) -> None:
    chunks, finish = ask(engine, background, chat(1003, 400), ignore_eos=True, max_tokens=7)
    assert (sum(chunk.tokens for chunk in chunks), finish) == (7, "length")


def test_a_stop_string_across_tokens_ends_the_answer(engine: ChildEngine, background: BackgroundLoop) -> None:
    chunks, finish = ask(engine, background, chat(400, 500, 600), stop=("0> <50",))
    assert ("".join(chunk.text for chunk in chunks), finish) == (" <40", "stop")


def test_each_request_has_a_conversation_of_its_own(engine: ChildEngine, background: BackgroundLoop) -> None:
    pids = set()
    for _ in range(3):
        ask(engine, background, chat(1001))
        pids |= {child.pid for child in psutil.Process(engine.pid).children()}
    assert len(pids) >= 3
    assert len(psutil.Process(engine.pid).children()) <= 1, "only the one that is ready for the next request"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        pytest.param({"seed": 1, "temperature": 0.7}, "leave `seed` out", id="a seed with sampling"),
        pytest.param({"logprobs": 2}, "neither logprobs", id="log-probabilities"),
        pytest.param({"min_tokens": 2}, "nor min_tokens", id="a minimum of tokens"),
        pytest.param({"ids": (400, 500)}, "set same_tokens=no", id="a prompt without the chat template"),
        pytest.param({"ids": tuple(range(300, 9300))}, "takes 1 to 8191", id="a prompt longer than its context"),
    ],
)
def test_what_it_cannot_do_is_refused(
    settings: dict[str, Any], reason: str, engine: ChildEngine, background: BackgroundLoop
) -> None:
    ids = settings.pop("ids", chat(1001))
    with pytest.raises(BadRequest, match=reason):
        ask(engine, background, ids, **settings)


def test_a_seed_with_greedy_decoding_is_accepted(engine: ChildEngine, background: BackgroundLoop) -> None:
    assert ask(engine, background, chat(1001), seed=3)[1] == "stop"


def test_a_prompt_without_the_template_is_served_where_that_is_allowed(
    tiny: Model, stand_in: Path, background: BackgroundLoop
) -> None:
    engine = load_engine("lmrs", tiny, {"same_tokens": "no"})
    background.run(engine.start())
    try:
        assert "".join(chunk.text for chunk in ask(engine, background, (1001,))[0]) == " <1001>"
    finally:
        background.run(engine.stop())


@pytest.mark.parametrize("token", [pytest.param(2003, id="it panics"), pytest.param(3003, id="it ends")])
def test_a_crash_is_reported_and_the_next_request_is_served(
    token: int, engine: ChildEngine, background: BackgroundLoop
) -> None:
    with pytest.raises(EngineCrashed, match="in the middle of its answer"):
        ask(engine, background, chat(token))
    assert ask(engine, background, chat(1001))[1] == "stop"


def test_a_cancelled_request_ends_its_process(engine: ChildEngine, background: BackgroundLoop) -> None:
    async def leave_early() -> str | None:
        stream = engine.generate(GenerateRequest("", chat(400), 5000))
        await anext(stream)
        (busy,) = psutil.Process(engine.pid).children()
        stream.cancel()
        await stream.stopped()
        assert not busy.is_running()
        return stream.finish_reason

    assert background.run(leave_early()) == "cancelled"


def test_its_absence_is_a_sentence_with_the_way_out(
    tiny: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("ENGINEBENCH_LMRS", raising=False)
    with pytest.raises(EngineUnavailable, match=r"samuel-vitorino/lm\.rs says, then put it on PATH or name it"):
        load_engine("lmrs", tiny)


def test_another_program_of_that_name_is_told_apart(
    tiny: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINEBENCH_LMRS", str(write_program(tmp_path / "backend", "print('backend 7')")))
    with pytest.raises(EngineUnavailable, match=r"is not lm\.rs's"):
        LmrsEngine(tiny, LmrsOptions()).load()


# Its files.


def read_back(model: Model, dtype: DType) -> dict[str, Any]:
    """Every tensor of the converted file, dequantised."""
    config = json.loads((model.folder / "config.json").read_text())
    data = np.fromfile(converted(model, dtype), np.uint8)[256:]
    found = {}
    for name, (rows, columns) in tensors(config):
        size = rows * columns
        if dtype == "float32" or rows == 1:
            taken, data = np.split(data, [4 * size])
            found[name] = taken.view("<f4").reshape(rows, columns)
            continue
        bits, scales, data = np.split(data, np.cumsum([size if dtype == "q8_0" else size // 2, size // 8]))
        if dtype == "q8_0":
            integers = bits.view(np.int8).astype(np.float32)
        else:
            integers = np.stack([bits & 15, bits >> 4], axis=1).reshape(-1).astype(np.float32) - 8
        found[name] = (integers.reshape(-1, 32) * scales.view("<f4")[:, None]).reshape(rows, columns)
    assert len(data) == 0
    return found


@pytest.mark.parametrize(
    ("dtype", "step"),
    [
        pytest.param("float32", 0.0, id="32-bit floats are exact"),
        pytest.param("q8_0", 1 / 127 / 2, id="8 bits are off by at most half a step of the block's largest weight"),
        pytest.param("q4_0", 1 / 7.5 / 2, id="4 bits are off by at most half a step of the block's largest weight"),
    ],
)
def test_every_tensor_comes_back(tiny: Model, dtype: DType, step: float) -> None:
    from safetensors.numpy import load_file

    expected, found = load_file(tiny.folder / "model.safetensors"), read_back(tiny, dtype)
    assert sorted(found) == sorted(expected)
    for name, truth in expected.items():
        if truth.ndim == 1:
            np.testing.assert_array_equal(found[name][0], truth)
            continue
        most = step * np.abs(truth.reshape(-1, 32)).max(axis=1, keepdims=True)
        assert (np.abs(found[name].reshape(-1, 32) - truth.reshape(-1, 32)) <= most * 1.0001).all()


def test_bfloat16_is_read_exactly(tiny: Model, tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    weights = write_bfloat16(tmp_path, load_file(tiny.folder / "model.safetensors"))
    (tmp_path / "config.json").write_bytes((tiny.folder / "config.json").read_bytes())
    found = read_back(Model("tiny", tmp_path), "float32")
    for name, values in weights.items():
        np.testing.assert_array_equal(found[name].reshape(-1), values.reshape(-1))


def test_the_header_stands_where_lmrs_reads_it(tiny: Model) -> None:
    start = header(json.loads((tiny.folder / "config.json").read_text()), "q4_0")
    assert start[:4] == b"lmrs"
    assert np.frombuffer(start, "<u4", 9, 4).tolist() == [4, 64, 192, 2, 4, 16, 2, VOCABULARY, 131_072]
    assert np.frombuffer(start, "<f4", 2, 40).tolist() == pytest.approx([1e-6, 500_000])
    assert (start[48], start[49]) == (2, 1), "Q4_0, Llama"
    assert int.from_bytes(start[50:54], "little") == 32
    assert start[54:] == bytes(202), "no images, and zeros up to byte 256"


def test_a_block_of_zeros_stays_zero() -> None:
    integers, scales = quantise(np.zeros(64, np.float32), "q8_0")
    assert not integers.any()
    assert not scales.any()


def test_random_weights_have_the_models_shape(tiny: Model) -> None:
    found = read_back(Model("random:tiny", tiny.folder, random_weights=True), "float32")
    assert float(found["model.embed_tokens.weight"].std()) == pytest.approx(0.02, rel=0.01)
    assert set(found["model.norm.weight"].reshape(-1).tolist()) == {1.0}


LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 5e5,
    "rope_scaling": ROPE,
    "tie_word_embeddings": True,
}


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        pytest.param(LLAMA | {"model_type": "qwen2"}, "Llama 3.2 only", id="another family"),
        pytest.param(LLAMA | {"rope_scaling": None}, "Llama 3.2 only", id="Llama 2: no rotary scaling"),
        pytest.param(LLAMA | {"rope_scaling": ROPE | {"factor": 8.0}}, "Llama 3.2 only", id="Llama 3.1"),
        pytest.param(LLAMA | {"tie_word_embeddings": False}, "Llama 3.2 only", id="an output matrix of its own"),
        pytest.param(LLAMA | {"vocab_size": 49_152}, "token 128009", id="no Llama special tokens"),
        pytest.param(LLAMA | {"intermediate_size": 100}, "blocks of 32", id="rows that are not whole blocks"),
        pytest.param(LLAMA | {"head_dim": 64}, "twice as wide", id="attention too wide for lm.rs"),
    ],
)
def test_a_model_that_lmrs_would_answer_wrongly_is_refused(config: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        check(config)


def test_a_missing_tensor_is_named(tiny: Model, tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    weights = load_file(tiny.folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_bytes((tiny.folder / "config.json").read_bytes())
    with pytest.raises(EngineUnavailable, match=r"has no model\.layers\.1\.mlp\.up_proj\.weight"):
        converted(Model("cut", tmp_path), "float32")


# Its tokens.


@pytest.mark.parametrize("day", ["2026-11-22", "2020-11-20", "2022-02-22", "2026-05-01", "2011-11-11"])
def test_the_date_and_every_message_are_read_as_the_models_own_tokens(day: str, tiny: Model) -> None:
    from tokenizers import Tokenizer

    date = datetime.date.fromisoformat(day)
    alphabet = Alphabet.of(Tokenizer.from_file(str(tiny.folder / "tokenizer.json")), VOCABULARY, date)
    assert tuple(alphabet.read(date.strftime("%d %b %Y"))) == alphabet.date
    ids = [300, 301, 301, 128_009, alphabet.date[0], 5000, VOCABULARY - 1]
    message = alphabet.message(ids)
    assert message is not None
    assert alphabet.read(message) == ids
    assert [alphabet.id(alphabet.character(id)) for id in ids] == ids


def test_a_chat_with_random_llama_is_read_as_the_servers_tokens() -> None:
    """One model that every engine runs on the same tokens, several turns included."""
    from tokenizers import Tokenizer

    from engines.models.fetch import fetch_model
    from servers.openai.prompts import load_tokenizer

    model = fetch_model("random:llama-3.2-1b")
    messages = [{"role": "user", "content": "Why 2026?"}, {"role": "assistant", "content": "So."}]
    messages.append({"role": "user", "content": "And then, on 22 Nov 2026?"})
    served = load_tokenizer(model)
    ids = served.encode(served.render(messages), special=False, limit=1000)
    alphabet = Alphabet.of(
        Tokenizer.from_file(str(model.folder / "tokenizer.json")), VOCABULARY, datetime.datetime.now().date()
    )
    inside = alphabet.inside_template(ids)
    assert inside is not None
    message = alphabet.message(inside)
    assert message is not None
    assert alphabet.read(message) == list(inside)


def test_tokens_that_lmrs_would_merge_are_not_sent(tiny: Model) -> None:
    alphabet = Alphabet(VOCABULARY, (10, 20), {"2": 10, "22": 20}, ())
    assert alphabet.message([10, 10]) is None
    assert alphabet.message([10, 300, 10]) is not None


def real_program() -> str:
    named = os.environ.get("ENGINEBENCH_LMRS")
    if named is None or STAND_IN.name in Path(named).read_text(errors="ignore"):
        pytest.skip("name lm.rs's `backend` in ENGINEBENCH_LMRS")
    return named


@pytest.mark.lmrs
@pytest.mark.parametrize("message", [(300, 7, 45_000), (400, 128_009, 128_006, 882, 128_007, 271, 9)])
@pytest.mark.parametrize("ignore_eos", [False, True])
def test_the_real_one_answers_as_transformers_does(tiny: Model, message: tuple[int, ...], ignore_eos: bool) -> None:
    """Greedy, 32-bit: proves the file's tensors, and that lm.rs reads exactly the request's token ids."""
    import torch
    from tokenizers import Tokenizer
    from transformers import AutoModelForCausalLM

    real_program()
    engine = LmrsEngine(tiny, LmrsOptions(dtype="float32"))
    engine.load()
    ids = chat(*message)

    async def answer() -> str:
        request = GenerateRequest("", ids, 24, ignore_eos=ignore_eos)
        text = "".join([chunk.text async for chunk in engine.generate(request)])
        await (await engine._spare[1]).close()  # type: ignore[index]
        return text

    net = AutoModelForCausalLM.from_pretrained(tiny.folder, dtype=torch.float32)
    produced = net.generate(torch.tensor([ids]), max_new_tokens=24, do_sample=False, pad_token_id=0)[0, len(ids) :]
    tokenizer = Tokenizer.from_file(str(tiny.folder / "tokenizer.json"))
    assert asyncio.run(answer()) == tokenizer.decode(produced.tolist(), skip_special_tokens=True)


@pytest.mark.lmrs
@pytest.mark.parametrize("dtype", ["float32", "q8_0", "q4_0"])
def test_the_real_one_loads_every_kind_of_file(dtype: str, tiny: Model, background: BackgroundLoop) -> None:
    real_program()
    engine = load_engine("lmrs", tiny, {"dtype": dtype})
    background.run(engine.start())
    chunks, finish = ask(engine, background, chat(300, 301), max_tokens=16)
    background.run(engine.stop())
    assert (sum(chunk.tokens for chunk in chunks), finish) == (16, "length")
