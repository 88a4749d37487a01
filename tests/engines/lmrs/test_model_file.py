"""lm.rs's file format: every tensor comes back, and what lm.rs would read wrongly is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engines.contract.base import Model
from engines.contract.errors import EngineUnavailable
from engines.lmrs.model_file import DType, check, converted, header, quantise, tensors
from tests.support.engines.lmrs_model import ROPE, VOCABULARY


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
    from safetensors.torch import load_file, save_file

    weights = {name: values.bfloat16() for name, values in load_file(tiny.folder / "model.safetensors").items()}
    save_file(weights, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_bytes((tiny.folder / "config.json").read_bytes())
    found = read_back(Model("tiny", tmp_path), "float32")
    for name, values in weights.items():
        np.testing.assert_array_equal(found[name].reshape(-1), values.float().numpy().reshape(-1))


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
