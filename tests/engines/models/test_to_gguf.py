"""What is written as GGUF is what Transformers' own reader finds in it."""

from pathlib import Path
from typing import Any

import pytest

from engines.contract.base import Model
from engines.contract.errors import EngineUnavailable
from engines.models.stored import key_heads
from engines.models.to_gguf import Format, gguf_of
from tests.support.engines.reference import Reference
from tests.support.engines.tiny_models import write_tiny

pytestmark = pytest.mark.xdist_group("torch")


@pytest.mark.parametrize(
    ("family", "format", "error"),
    [
        pytest.param("llama", "float32", 0.0, id="rows of queries and keys are put in another order"),
        pytest.param("qwen2", "float32", 0.0, id="biases, and rows that stay where they are"),
        pytest.param("llama", "q8_0", 1 / 127, id="blocks of 8 bits"),
    ],
)
def test_weights_come_back_as_they_were(
    family: str, format: Format, error: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, said = write_tiny(tmp_path / "model", family)
    monkeypatch.setenv("ENGINEBENCH_CACHE", str(tmp_path / "cache"))
    file = gguf_of(model, format)
    found = dict(Reference.of_gguf(file).model.named_parameters())
    for name, parameter in said.model.named_parameters():
        weights, read = parameter.detach(), found[name].detach()
        assert float((weights - read).abs().max()) <= error * float(weights.abs().max()), name
    stamp = file.stat().st_mtime_ns
    assert gguf_of(model, format).stat().st_mtime_ns == stamp, "it is written once"


@pytest.mark.parametrize(
    ("named", "heads"), [({"num_key_value_heads": 2}, 2), ({}, 4), ({"num_key_value_heads": None}, 4)]
)
def test_configurations_older_than_grouped_queries_have_as_many_of_keys(named: dict[str, Any], heads: int) -> None:
    assert key_heads({"num_attention_heads": 4} | named) == heads


def test_another_family_is_refused_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(EngineUnavailable, match=r"not gpt2; give a \.gguf file"):
        gguf_of(Model("m", tmp_path), "q8_0")


def test_every_end_of_an_answer_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gguf import GGUFReader

    model, _ = write_tiny(tmp_path / "model", "llama")
    (model.folder / "generation_config.json").write_text('{"eos_token_id": [5, 9]}')
    monkeypatch.setenv("ENGINEBENCH_CACHE", str(tmp_path / "cache"))
    fields = GGUFReader(gguf_of(model, "float16")).fields
    assert [fields[f"tokenizer.ggml.{name}_token_id"].contents() for name in ("eos", "eot")] == [5, 9]
