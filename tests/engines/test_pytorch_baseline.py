"""The unoptimised baseline: the right tokens, and all the work that it is meant to waste."""

from pathlib import Path
from typing import Any

import pytest

from engines.contract.base import EngineInfo, GenerateRequest
from engines.contract.errors import EngineUnavailable
from engines.models.fetch import fetch_model
from engines.process.engine_loading import load_engine
from engines.pytorch_baseline import BaselineOptions, PytorchBaselineEngine
from tests.support.engines.nvml_stand_in import Gpu, install
from tests.support.engines.static_decoder import WITHIN, prompt
from tests.support.engines.tiny_models import write_tiny
from tests.support.engines.torch_when_used import torch

pytestmark = pytest.mark.xdist_group("torch")

LAYERS = 2  # of the tiny models


def loaded(folder: Path, model_type: str, **differs: Any) -> tuple[PytorchBaselineEngine, Any]:
    model, reference = write_tiny(folder, model_type, **differs)
    engine = PytorchBaselineEngine(model, BaselineOptions(device="cpu"))
    engine.load()
    return engine, reference


async def test_it_is_not_warmed_up_and_others_are() -> None:
    """What the server asks for before it is ready."""
    warmed: list[str] = []

    def warm_up(info: EngineInfo) -> GenerateRequest:
        warmed.append(info.name)
        return GenerateRequest("", (1, 2), 2)

    baseline = load_engine("pytorch-baseline", fetch_model("random:unoptimized-512"), {"device": "cpu"})
    for engine in (baseline, load_engine("fake", None, {})):
        engine.warm_up = warm_up
        await engine.start()
        await engine.stop()
    assert warmed == ["fake"]


def chosen(engine: PytorchBaselineEngine, ids: list[int], tokens: int) -> list[int]:
    from engines.pytorch import unoptimized

    answer = list(ids)
    for logits in unoptimized.passes(engine.network, answer, torch.device("cpu")):
        answer.append(int(logits.argmax()))
        if len(answer) == len(ids) + tokens:
            break
    return answer[len(ids) :]


@pytest.mark.parametrize(
    ("model_type", "differs"),
    [
        pytest.param("llama", {"attention_bias": True, "mlp_bias": True}, id="llama with biases"),
        pytest.param("qwen2", {"tie_word_embeddings": True}, id="qwen2"),
        pytest.param("phi3", {}, id="phi3"),
    ],
)
def test_it_generates_the_tokens_of_transformers(model_type: str, differs: dict[str, Any], tmp_path: Path) -> None:
    engine, reference = loaded(tmp_path, model_type, **differs)
    for seed in range(3):
        ids = prompt(seed, 4 + 9 * seed)
        assert chosen(engine, ids, 10) == reference.greedy(ids, 10)
        found, expected = engine.network(torch.tensor(ids)), reference.logits(ids)[-1]
        assert float((found - expected).abs().max()) <= WITHIN * float(expected.abs().max())


def test_each_token_reads_the_whole_sequence_and_waits_after_each_layer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, _ = loaded(tmp_path, "llama")
    read: list[int] = []
    waits: list[Any] = []
    network = engine.network

    def observed(ids: Any) -> Any:
        read.append(len(ids))
        return network(ids)

    monkeypatch.setattr("engines.pytorch.unoptimized.synchronize", waits.append)
    monkeypatch.setattr(engine, "network", observed)
    list(engine.generate_blocking(GenerateRequest("", tuple(prompt(0, 7)), 5, ignore_eos=True)))
    assert read == [7, 8, 9, 10, 11]
    assert len(waits) == LAYERS * 5


def test_a_cold_request_has_a_process_of_its_own(tmp_path: Path) -> None:
    model, _ = write_tiny(tmp_path, "llama")
    request = GenerateRequest("", tuple(prompt(0, 5)), 4, ignore_eos=True)
    warm, cold = (PytorchBaselineEngine(model, BaselineOptions(device="cpu", cold=cold)) for cold in (False, True))
    warm.load()
    cold.load()
    assert not hasattr(cold, "network"), "nothing is loaded before a request comes"
    there, here = (list(engine.generate_blocking(request)) for engine in (cold, warm))
    assert "".join(chunk.text for chunk in there) == "".join(chunk.text for chunk in here)
    assert [chunk.tokens for chunk in there] == [1, 1, 1, 1, 0]
    assert there[-1].finish_reason == "length"


@pytest.mark.parametrize("device", ["cuda:1", "mps"])
def test_a_wait_is_for_the_device_that_computes(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one, a layer's operations on a GPU run beside the next layer's launches."""
    from engines.pytorch.unoptimized import synchronize

    waited: list[Any] = []
    monkeypatch.setattr("torch.accelerator.synchronize", waited.append)
    synchronize(torch.device("cpu"))
    synchronize(torch.device(device))
    assert waited == [torch.device(device)]


def test_a_cold_engine_says_on_which_device_its_requests_will_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """By which its memory on a GPU is counted."""
    install(monkeypatch, [Gpu()])
    engine = PytorchBaselineEngine(fetch_model("random:unoptimized-512"), BaselineOptions(cold=True))
    assert engine.load().device == "cuda"


def test_a_cold_request_that_fails_says_why(tmp_path: Path) -> None:
    model, _ = write_tiny(tmp_path, "llama")
    engine = PytorchBaselineEngine(model, BaselineOptions(device="cuda:99", cold=True))
    engine.load()
    with pytest.raises(EngineUnavailable, match=r"no device `cuda:99`: torch finds \d+ CUDA devices"):
        list(engine.generate_blocking(GenerateRequest("", (5, 6), 4)))


def test_the_stack_has_the_shape_it_is_named_for() -> None:
    engine = PytorchBaselineEngine(fetch_model("random:unoptimized-512"), BaselineOptions(device="cpu"))
    engine.load()
    network: Any = engine.network
    assert network._embedding.weight.shape == (32_000, 512)
    assert [tuple(layer.weight.shape) for layer in network._layers] == [(512, 512)] * 8
    assert network._head.weight.shape == (32_000, 512)
