"""What DeepSpeed is given, with a stand-in that has the signature of 0.19.8. Its kernels need a GPU."""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from engines.contract.errors import EngineUnavailable
from engines.deepspeed import DeepSpeedEngine, DeepSpeedOptions
from tests.support.engines.nvml_stand_in import install
from tests.support.engines.tiny_models import write_tiny

pytestmark = pytest.mark.xdist_group("torch")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The configurations that `init_inference` was given. It leaves the network as it is."""
    given: list[dict[str, Any]] = []
    module = ModuleType("deepspeed")
    module.__spec__ = ModuleSpec("deepspeed", None)  # which other libraries look for

    def init_inference(model: Any, config: dict[str, Any] | None = None, **kwargs: Any) -> Any:
        given.append({**(config or {}), **kwargs})
        return SimpleNamespace(module=model)

    module.init_inference = init_inference  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "deepspeed", module)
    return given


def test_kernels_are_asked_for_with_a_cache_of_the_models_length(asked: list[dict[str, Any]], tmp_path: Any) -> None:
    model, _ = write_tiny(tmp_path, "llama")
    engine = DeepSpeedEngine(model, DeepSpeedOptions(device="cpu", dtype="float32"))
    engine.open_device()
    engine._device = SimpleNamespace(type="cuda")  # as far as it is looked at here
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engines.transformers.read_network", lambda *given, **settings: "a network")
        assert engine._read(model, torch.bfloat16, None) == "a network"
    assert asked == [
        {
            "dtype": torch.bfloat16,
            "replace_with_kernel_inject": True,
            "tensor_parallel": {"tp_size": 1},
            "max_out_tokens": 2048,
        }
    ]


def test_without_a_gpu_it_says_so(asked: list[dict[str, Any]], tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, [])
    assert DeepSpeedEngine.why_not_here() == "it needs an NVIDIA GPU, and there is none here."
    model, _ = write_tiny(tmp_path, "llama")
    with pytest.raises(EngineUnavailable, match="DeepSpeed's kernels run on CUDA devices, not on cpu"):
        DeepSpeedEngine(model, DeepSpeedOptions(device="cpu")).load()
