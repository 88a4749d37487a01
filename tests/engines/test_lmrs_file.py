"""The files for lm.rs, read back tensor by tensor; and its way with text, held against the model's own tokenizer."""

import datetime
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from engines.contract.base import EngineUnavailable, Model
from engines.lmrs.convert import convert, converted, header_of
from engines.lmrs.file import DType, Header, file_bytes, parts, read_tensors
from engines.lmrs.text import LmrsTokenizer, user_message
from tests.support.lmrs_model import ROPE, VOCABULARY, rendered, write_tiny_llama


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return write_tiny_llama(tmp_path_factory.mktemp("tiny-llama"))


def stored(model: Model) -> dict[str, NDArray[np.float32]]:
    from safetensors.numpy import load_file

    return load_file(model.folder / "model.safetensors")


def test_the_header_stands_where_lmrs_reads_it(tiny: Model, tmp_path: Path) -> None:
    convert(tiny, "q4_0", tmp_path)
    start = (tmp_path / "model.lmrs").read_bytes()[:256]
    assert start[:4] == b"lmrs"
    numbers = np.frombuffer(start, "<u4", 9, 4)
    assert numbers.tolist() == [4, 64, 192, 2, 4, 16, 2, VOCABULARY, 131_072]
    assert np.frombuffer(start, "<f4", 2, 40).tolist() == pytest.approx([1e-6, 500_000])
    assert (start[48], start[49]) == (2, 1), "Q4_0, Llama"
    assert int.from_bytes(start[50:54], "little") == 64
    assert start[54:] == bytes(202), "no images, and zeros up to byte 256"


@pytest.mark.parametrize(
    ("dtype", "step"),
    [
        pytest.param("f32", 0.0, id="32-bit floats come back as they went in"),
        pytest.param("q8_0", 1 / 127 / 2, id="8 bits are off by at most half a step of the group's largest weight"),
        pytest.param("q4_0", 1 / 7.5 / 2, id="4 bits are off by at most half a step of the group's largest weight"),
    ],
)
def test_every_tensor_comes_back(tiny: Model, tmp_path: Path, dtype: DType, step: float) -> None:
    convert(tiny, dtype, tmp_path)
    expected = stored(tiny)
    seen = []
    for name, weights in read_tensors(tmp_path / "model.lmrs"):
        seen.append(name)
        truth = expected[name]
        assert weights.shape == truth.shape
        if truth.ndim == 1:
            np.testing.assert_array_equal(weights, truth)
            continue
        groups = truth.reshape(-1, 64)
        most = step * np.abs(groups).max(axis=1, keepdims=True)
        assert (np.abs(weights.reshape(-1, 64) - groups) <= most * 1.0001).all()
    assert sorted(seen) == sorted(expected)


def test_the_tensors_stand_in_the_order_that_lmrs_reads(tiny: Model) -> None:
    header = header_of(json.loads((tiny.folder / "config.json").read_text()), "f32")
    short = [part.name.removeprefix("model.").removesuffix(".weight") for part in parts(header)]

    def each(name: str) -> list[str]:
        return [f"layers.0.{name}", f"layers.1.{name}"]

    assert short == [
        "embed_tokens",
        *each("input_layernorm"),
        *each("self_attn.q_proj"),
        *each("self_attn.k_proj"),
        *each("self_attn.v_proj"),
        *each("self_attn.o_proj"),
        *each("post_attention_layernorm"),
        *each("mlp.gate_proj"),
        *each("mlp.down_proj"),
        *each("mlp.up_proj"),
        "norm",
    ]


def test_phi_is_cut_out_of_its_joint_matrices_and_bfloat16_is_exact(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(0)
    dim, hidden, heads, vocabulary = 192, 64, 2, 32_064
    weights = {
        "model.embed_tokens.weight": (vocabulary, dim),
        "model.layers.0.input_layernorm.weight": (dim,),
        "model.layers.0.self_attn.qkv_proj.weight": (3 * dim, dim),
        "model.layers.0.self_attn.o_proj.weight": (dim, dim),
        "model.layers.0.post_attention_layernorm.weight": (dim,),
        "model.layers.0.mlp.gate_up_proj.weight": (2 * hidden, dim),
        "model.layers.0.mlp.down_proj.weight": (dim, hidden),
        "model.norm.weight": (dim,),
        "lm_head.weight": (vocabulary, dim),
    }
    tensors = {name: torch.randn(shape).bfloat16() for name, shape in weights.items()}
    save_file(tensors, tmp_path / "model.safetensors")
    config = {
        "model_type": "phi3",
        "hidden_size": dim,
        "intermediate_size": hidden,
        "num_hidden_layers": 1,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "vocab_size": vocabulary,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10_000.0,
        "rope_scaling": {"type": "longrope"},
        "bos_token_id": 1,
        "eos_token_id": 32_000,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    pieces = {"<s>": 1, "▁": 2, "a": 3, "▁a": 4}
    (tmp_path / "tokenizer.json").write_text(
        json.dumps({"model": {"type": "BPE", "vocab": pieces, "merges": [["▁", "a"]]}, "added_tokens": []})
    )
    out = tmp_path / "out"
    out.mkdir()
    convert(Model("phi", tmp_path), "f32", out)
    read = dict(read_tensors(out / "model.lmrs"))
    qkv = tensors["model.layers.0.self_attn.qkv_proj.weight"].float().numpy()
    gate_up = tensors["model.layers.0.mlp.gate_up_proj.weight"].float().numpy()
    for at, name in enumerate("qkv"):
        cut = read[f"model.layers.0.self_attn.{name}_proj.weight"]
        np.testing.assert_array_equal(cut, qkv[at * dim : (at + 1) * dim])
    np.testing.assert_array_equal(read["model.layers.0.mlp.up_proj.weight"], gate_up[hidden:])
    np.testing.assert_array_equal(read["lm_head.weight"], tensors["lm_head.weight"].float().numpy())
    tokenizer = LmrsTokenizer.read(out / "tokenizer.bin")
    assert (len(tokenizer.texts), tokenizer.texts[4], tokenizer.joined("a a")) == (vocabulary, " a", (3, 4))


GEMMA = {
    "model_type": "gemma2",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "head_dim": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 256_000,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10_000.0,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
    "query_pre_attn_scalar": 32,
}
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


def test_gemma_has_its_four_norms() -> None:
    names = [part.name for part in parts(header_of(GEMMA, "q8_0"))]
    norms = [name.split(".")[-2] for name in names if "layernorm" in name]
    assert norms == [
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
    ]


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        pytest.param({"model_type": "qwen2"}, "knows the families", id="a family that lm.rs has never heard of"),
        pytest.param(LLAMA | {"rope_scaling": None}, "Llama 3.2 only", id="Llama 2: no rotary scaling"),
        pytest.param(
            LLAMA | {"rope_scaling": ROPE | {"factor": 8.0}}, "Llama 3.2 only", id="Llama 3.1: another rotary scaling"
        ),
        pytest.param(LLAMA | {"tie_word_embeddings": False}, "Llama 3.2 only", id="an output matrix of its own"),
        pytest.param(GEMMA | {"query_pre_attn_scalar": 144}, "2B and 9B", id="Gemma 2 27B: another scale"),
        pytest.param(LLAMA | {"vocab_size": 49_152}, "token 128009", id="a vocabulary without Llama's special tokens"),
        pytest.param(LLAMA | {"intermediate_size": 100}, "groups of 16", id="rows that can't be split into groups"),
        pytest.param(LLAMA | {"head_dim": 64}, "twice as wide", id="attention too wide for lm.rs"),
        pytest.param(LLAMA | {"num_hidden_layers": 1 << 20}, "32 bits", id="more weights than lm.rs can count"),
    ],
)
def test_a_model_that_lmrs_would_answer_wrongly_is_refused(config: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        header_of(config, "q8_0")


def test_a_cut_file_and_a_foreign_file_are_told_apart(tiny: Model, tmp_path: Path) -> None:
    convert(tiny, "q8_0", tmp_path)
    path = tmp_path / "model.lmrs"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(ValueError, match="its header asks for"):
        list(read_tensors(path))
    path.write_bytes(b"GGUF" + whole[4:])
    with pytest.raises(ValueError, match=r"no \.lmrs file"):
        Header.read(path)


def test_a_missing_tensor_is_named(tiny: Model, tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    weights = stored(tiny)
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, tmp_path / "model.safetensors")
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_bytes((tiny.folder / name).read_bytes())
    with pytest.raises(EngineUnavailable, match=r"has no model\.layers\.1\.mlp\.up_proj\.weight"):
        convert(Model("cut", tmp_path), "f32", tmp_path)


def test_random_weights_are_drawn_in_the_models_shape(tiny: Model, tmp_path: Path) -> None:
    drawn = Model("random:tiny", tiny.folder, random_weights=True)
    convert(drawn, "f32", tmp_path)
    read = dict(read_tensors(tmp_path / "model.lmrs"))
    assert float(read["model.embed_tokens.weight"].std()) == pytest.approx(0.02, rel=0.01)
    assert set(read["model.norm.weight"].tolist()) == {1.0}


def test_a_conversion_is_made_once(tiny: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINEBENCH_CACHE", str(tmp_path))
    told: list[str] = []
    folder = converted(tiny, "q8_0", lambda task, done=0, total=None: told.append(task))
    header = Header.read(folder / "model.lmrs")
    assert (folder / "model.lmrs").stat().st_size == file_bytes(header)
    count = len(told)
    assert converted(tiny, "q8_0", lambda task, done=0, total=None: told.append(task)) == folder
    assert len(told) == count > 1


# Text.


@pytest.fixture(scope="module")
def tokenizers(tiny: Model, tmp_path_factory: pytest.TempPathFactory) -> tuple[LmrsTokenizer, Any]:
    """lm.rs's way and the model's own."""
    from tokenizers import Tokenizer

    folder = tmp_path_factory.mktemp("tokenizer")
    convert(tiny, "q8_0", folder)
    return LmrsTokenizer.read(folder / "tokenizer.bin"), Tokenizer.from_file(str(tiny.folder / "tokenizer.json"))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("Once upon a time there was a village near the sea", id="plain words"),
        pytest.param("a", id="one character"),
        pytest.param("the the the", id="the same pair again and again"),
        pytest.param("and on the other hand, in the end", id="pairs that compete for a character"),
        pytest.param("sheherheher", id="a long run without a space"),
    ],
)
def test_lmrs_cuts_words_as_the_models_own_tokenizer_does(text: str, tokenizers: tuple[LmrsTokenizer, Any]) -> None:
    theirs, own = tokenizers
    assert theirs.joined(text) == tuple(own.encode(text).ids)


def test_what_lmrs_reads_is_its_template_around_the_message(tokenizers: tuple[LmrsTokenizer, Any]) -> None:
    theirs, own = tokenizers
    read = theirs.prompt_ids("the end", "llama", datetime.date(2026, 5, 12))
    assert read is not None
    date = tuple(own.encode("12").ids + own.encode(" May").ids + own.encode(" 2026").ids)
    assert read[:5] == (128000, 128006, 9125, 128007, 271)
    assert read[19 : 19 + len(date)] == date
    assert read[19 + len(date) :][:6] == (271, 128009, 128006, 882, 128007, 271)
    assert read[-7:] == (*own.encode("the end").ids, 128009, 128006, 78191, 128007, 271)[-7:]


def test_characters_without_a_token_are_not_guessed_at(tokenizers: tuple[LmrsTokenizer, Any]) -> None:
    theirs, _ = tokenizers
    assert theirs.prompt_ids("snow ☃", "llama", datetime.date(2026, 5, 12)) is None


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        pytest.param("  tell me a story\n", "tell me a story", id="a plain prompt is a message, trimmed as lm.rs does"),
        pytest.param(rendered("Why?\nTell me.", "12 May 2026"), "Why?\nTell me.", id="the message of a chat"),
        pytest.param(
            rendered("Why?", "12 May 2026").replace("2026\n\n", "2026\n\nBe brief."), None, id="a system message"
        ),
        pytest.param(
            rendered("Why?", "12 May 2026")
            + "So.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nWhy?<|eot_id|>"
            + "<|start_header_id|>assistant<|end_header_id|>\n\n",
            None,
            id="a second turn",
        ),
    ],
)
def test_the_message_is_found_in_the_rendered_prompt(prompt: str, message: str | None) -> None:
    assert user_message(prompt, "llama") == message
