"""What is written as GGUF is read back by Transformers' own reader, through the conversion that GGUF files get here."""

from pathlib import Path
from typing import Any

import pytest

from engines.contract.base import EngineUnavailable, Model
from engines.models.convert import convert
from engines.models.fetch import fetch_model
from engines.models.gguf_file import Format, gguf_of
from engines.models.random_weights import with_weights


@pytest.fixture(scope="module")
def model() -> Model:
    """With Llama 3's rotary scaling, grouped heads and tied embeddings."""
    return with_weights(fetch_model("random:llama-3.2-tiny"))


def weights_in(folder: Path) -> dict[str, Any]:
    import torch
    from safetensors.torch import load_file

    found: dict[str, Any] = {}
    for file in folder.glob("*.safetensors"):
        found |= {name: tensor.to(torch.float32) for name, tensor in load_file(file).items()}
    return found


@pytest.mark.parametrize(
    ("format", "error"),
    [
        pytest.param("bfloat16", 0.0, id="the format that it has"),
        pytest.param("q8_0", 1 / 127, id="blocks of 8 bits"),
    ],
)
def test_weights_come_back_as_they_were(model: Model, format: Format, error: float, tmp_path: Path) -> None:
    convert(gguf_of(model, format), tmp_path)
    before, after = weights_in(model.folder), weights_in(tmp_path)
    assert before.keys() == after.keys() - {"lm_head.weight"}
    for name, weights in before.items():
        largest = float(weights.abs().max())
        assert float((weights - after[name]).abs().max()) <= error * largest, name


def test_a_file_is_written_once(model: Model) -> None:
    first = gguf_of(model, "bfloat16")
    stamp = first.stat().st_mtime_ns
    assert gguf_of(model, "bfloat16") == first
    assert first.stat().st_mtime_ns == stamp


def test_another_family_is_refused_with_the_way_out() -> None:
    with pytest.raises(EngineUnavailable, match=r"not gpt2; give a \.gguf file"):
        gguf_of(fetch_model("random:gpt2"), "q8_0")
