"""Quantisation while loading: what the installed library can do, and the weights' format that is reported."""

import sys
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from engines.contract.base import Model
from engines.contract.errors import EngineUnavailable
from engines.models.size import quantised_before
from engines.pytorch import network
from engines.pytorch.network import _group_size, loading_settings, quantised_after, read_network, weights_format
from tests.support.engines.small_model import small_model
from tests.support.engines.tiny_models import write_tiny
from tests.support.engines.torch_when_used import torch

pytestmark = pytest.mark.xdist_group("torch")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return write_tiny(tmp_path_factory.mktemp("tiny"), "llama")[0]


class Packing(Enum):
    """As torchao 0.18 has them."""

    PLAIN = "plain"
    TILE_PACKED_TO_4D = "tile_packed_to_4d"


@dataclass
class Int4(SimpleNamespace):
    """The signature of torchao 0.18's `Int4WeightOnlyConfig`, as far as it is used."""

    group_size: int = 128
    int4_packing_format: Any = Packing.PLAIN


@pytest.fixture(autouse=True)
def torchao(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("torchao.quantization")
    module.Int4WeightOnlyConfig, module.Int8WeightOnlyConfig = Int4, SimpleNamespace  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchao", ModuleType("torchao"))
    monkeypatch.setitem(sys.modules, "torchao.quantization", module)
    monkeypatch.setattr(network, "find_spec", lambda name: object())
    monkeypatch.setattr(network, "version", lambda name: "0.18.0")
    monkeypatch.setattr("transformers.TorchAoConfig", lambda made: made)


def test_4_bits_on_a_gpu_take_the_kernel_that_torch_has(model: Model) -> None:
    made = loading_settings("torchao-int4", model, torch.device("cuda"), torch.bfloat16)["quantization_config"]
    assert (made.int4_packing_format, made.group_size) == ("tile_packed_to_4d", 128)


def test_weights_that_share_a_scale_are_of_one_row() -> None:
    smollm2 = SimpleNamespace(hidden_size=576, intermediate_size=1536, num_attention_heads=9, head_dim=64)
    assert _group_size(smollm2) == 64
    with pytest.raises(EngineUnavailable, match=r"grouped by 32 and more, and rows of this model are not \(48\)"):
        _group_size(SimpleNamespace(hidden_size=48, intermediate_size=96, num_attention_heads=3, head_dim=16))


def test_what_the_library_has_no_kernel_for_is_refused(model: Model) -> None:
    with pytest.raises(EngineUnavailable, match=r"torchao 0\.18\.0 has no 4-bit kernel for cpu; use torchao-int8"):
        loading_settings("torchao-int4", model, torch.device("cpu"), torch.bfloat16)
    with pytest.raises(EngineUnavailable, match="with bfloat16 only, not with float16"):
        loading_settings("torchao-int4", model, torch.device("cuda"), torch.float16)


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({}, None),
        ({"quantization_config": None}, None),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "gptq-int4"),
        ({"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True}}, "bitsandbytes-int8"),
        ({"quantization_config": {"quant_method": "fp8"}}, "fp8"),
    ],
)
def test_weights_that_were_quantised_before(config: dict[str, Any], name: str | None) -> None:
    assert quantised_before(config) == name
    net = SimpleNamespace(config=SimpleNamespace(to_dict=lambda: config))
    assert weights_format(net, torch.bfloat16, "none") == (name or "bfloat16")
    assert weights_format(net, torch.bfloat16, "bnb-int4") == "int4"


@pytest.mark.gpu
@pytest.mark.parametrize("quantization", ["torchao-int8", "torchao-int4", "bnb-int8", "bnb-int4"])
def test_quantised_weights_answer_on_a_gpu(quantization: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    pytest.importorskip("torchao" if quantization.startswith("torchao") else "bitsandbytes")
    from engines.contract.base import GenerateRequest
    from engines.transformers import TransformersEngine, TransformersOptions

    engine = TransformersEngine(small_model(), TransformersOptions(quantization=quantization))
    info = engine.load()
    assert (info.dtype, info.options["activations"]) == (quantization.rpartition("-")[2], "bfloat16")
    request = GenerateRequest("", tuple(engine._tokenizer.encode("The capital of France is").ids), 8, ignore_eos=True)
    assert sum(chunk.tokens for chunk in engine.generate_blocking(request)) == 8


class Rtn(SimpleNamespace):
    """The signature of Neural Compressor 3.10's `RTNConfig`, as far as it is used."""

    def __init__(self, bits: int = 4, use_sym: bool = True, group_size: int = 32, use_layer_wise: bool = True) -> None:
        super().__init__(bits=bits, group_size=group_size, use_layer_wise=use_layer_wise)


def test_neural_compressor_quantises_the_network_that_was_read(monkeypatch: pytest.MonkeyPatch, model: Model) -> None:
    seen: list[Any] = []

    def prepare(net: Any, config: Any) -> Any:
        seen.append(config)
        return net

    module = ModuleType("neural_compressor.torch.quantization")
    module.RTNConfig, module.prepare, module.convert = Rtn, prepare, lambda net: net  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "neural_compressor.torch.quantization", module)
    cpu = torch.device("cpu")
    assert loading_settings("inc-int4", model, cpu, torch.float32) == {}
    net = read_network(model, cpu, torch.float32)
    assert quantised_after(net, "inc-int4") is net
    assert (seen[0].bits, seen[0].group_size, seen[0].use_layer_wise) == (4, 128, False)
    assert quantised_after(net, "torchao-int8") is net, "which was quantised while it was read"
    assert weights_format(net, torch.float32, "inc-int4") == "int4"


def test_a_quantiser_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, model: Model) -> None:
    monkeypatch.setattr(network, "find_spec", lambda name: None)
    with pytest.raises(EngineUnavailable, match=r"inc-int8 needs neural-compressor-pt; install with: pip install neur"):
        loading_settings("inc-int8", model, torch.device("cpu"), torch.float32)
