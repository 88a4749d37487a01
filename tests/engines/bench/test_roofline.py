"""Bytes and operations of a model's steps, on the shapes of the default model and of presets; shares of limits."""

import json
from pathlib import Path

import pytest

from engines.bench.measure import Key
from engines.bench.result import ARITHMETIC, BANDWIDTH
from engines.bench.roofline import Limit, ModelCost, arithmetic_of, cost_of, cpu_flops, read_bandwidth, shares_of
from engines.bench.rounds import gpus_of
from engines.bench.settings import Variant
from engines.contract.base import EngineInfo, Model
from engines.models.fetch import fetch_model

PARAMETERS = 134_515_008  # SmolLM2-135M, whose embedding is also its head
HEAD = 49_152 * 576
NORMS = 61 * 576  # of them, two per layer and one at the end
COST = ModelCost(matrices=1_000_000, head=0, vectors=0, attention=0)
LIMIT = Limit("cpu", "float32", bandwidth=8e9, flops=40e9)


def shares(
    metric: str, size: int | None, value: float, dtype: str = "float32", gpus: int = 1
) -> dict[str, float | None]:
    return dict(shares_of((metric, size), value, dtype, COST, LIMIT, gpus))


@pytest.mark.parametrize(
    ("weights", "bits"), [("float32", 32), ("q8_0", 8 + 16 / 32), ("q4_0", 4 + 16 / 32)], ids=lambda value: str(value)
)
def test_a_token_reads_every_matrix_once(weights: str, bits: float) -> None:
    cost = cost_of(fetch_model())
    assert cost is not None
    assert cost.bytes_per_step(weights) == (PARAMETERS - NORMS) * bits / 8 + NORMS * 4


def test_multiplications_of_a_prompt() -> None:
    """Two for each weight and token, the head once; attention of 30 layers, 576 wide, over half of 100 × 100."""
    cost = cost_of(fetch_model())
    assert cost is not None
    assert cost.decode_flops == 2 * (PARAMETERS - NORMS)
    attention = 2 * 2 * 30 * 576 * 100 * 100 / 2
    assert cost.prefill_flops(100) == 2 * 100 * (PARAMETERS - NORMS - HEAD) + 2 * HEAD + attention


def test_random_weights_cost_what_the_preset_says() -> None:
    cost = cost_of(fetch_model("random:llama-3.2-tiny"))
    assert cost is not None
    assert cost.matrices == 33_948_928, "its embedding is its head"
    assert cost.bytes_per_step("bfloat16") == 2 * 33_948_928
    assert cost.bytes_per_step("wibble") is None


def test_a_mixture_of_experts_has_no_share(tmp_path: Path) -> None:
    """A token reads some of the weights, and the files do not say which."""
    config = {"model_type": "mixtral", "vocab_size": 32, "hidden_size": 8, "num_hidden_layers": 1}
    for experts in ({}, {"num_local_experts": 8}, {"num_experts": 8}, {"n_routed_experts": 64}):
        (tmp_path / "config.json").write_text(json.dumps(config | experts))
        assert (cost_of(Model("llama-3.2-tiny", tmp_path)) is None) == bool(experts)


@pytest.mark.parametrize(
    ("key", "value", "bandwidth", "flops"),
    [
        pytest.param(("decode", None), 0.001, 4e6 / 0.001 / 8e9, 2e6 / 0.001 / 40e9, id="a token reads 4 MB in 1 ms"),
        pytest.param(("batch decode", 10), 1e3, 4e6 * 100 / 8e9, 2e6 * 1000 / 40e9, id="100 steps a second, 10 each"),
        pytest.param(("prefill", 100), 0.01, 4e6 / 0.01 / 8e9, 2e8 / 0.01 / 40e9, id="100 tokens in 10 ms"),
    ],
)
def test_shares_of_the_limits(key: Key, value: float, bandwidth: float, flops: float) -> None:
    measured = shares(*key, value)
    assert measured == {BANDWIDTH: pytest.approx(bandwidth), ARITHMETIC: pytest.approx(flops)}


def test_gpus_that_share_a_model_share_its_needs() -> None:
    """4 MB a token in 1 ms are a half of 8 GB/s, and a quarter of two GPUs'."""
    assert shares("decode", None, 0.001) == {BANDWIDTH: 0.5, ARITHMETIC: 0.05}
    assert shares("decode", None, 0.001, gpus=2) == {BANDWIDTH: 0.25, ARITHMETIC: 0.025}


@pytest.mark.parametrize(
    ("engine", "options", "device", "gpus"),
    [
        ("vllm", {"tensor_parallel": "2", "prefill_context_parallel": "2"}, "cuda", 4),
        ("vllm", {"tensor_parallel": "2"}, "cpu", 1),  # groups of cores
        ("sglang", {}, "cuda", 1),
        ("transformers", {"memory": "ignore"}, "cuda:1", 1),
        ("remote", {"url": "http://127.0.0.1:1/v1"}, "cuda:0", 0),
    ],
)
def test_how_many_gpus_share_the_model(engine: str, options: dict[str, str], device: str, gpus: int) -> None:
    info = EngineInfo(engine, "1", "python", "m", "bfloat16", device, "continuous", 8, 2048)
    assert gpus_of(Variant(engine, engine, options=options), info) == gpus


def test_what_has_no_bound_has_no_share() -> None:
    assert shares("generate", 10, 1.0) == {}
    for dtype in ("wibble", "auto", "awq", "gguf"):
        assert shares("decode", None, 1.0, dtype) == {}, "bytes per weight are not known"


def test_how_quantised_weights_are_multiplied_is_the_engines_choice() -> None:
    for dtype in ("q8_0", "fp8", "int4"):
        read = COST.bytes_per_step(dtype)
        assert read is not None
        assert shares("prefill", 100, 0.01, dtype) == {BANDWIDTH: pytest.approx(read / 0.01 / 8e9)}


@pytest.mark.parametrize(("seconds", "share"), [(0.0005, 1.0), (0.00049, 1.0), (0.0004, None)])
def test_no_share_is_above_1(seconds: float, share: float | None) -> None:
    """4 MB in 0.5 ms is all of 8 GB/s; 4 MB in 0.4 ms were not read from this memory."""
    assert shares("decode", None, seconds)[BANDWIDTH] == share


def test_this_machine_has_limits() -> None:
    assert 1e8 < read_bandwidth(1 << 24) < 1e13
    assert 1e8 < cpu_flops() < 1e15
    assert [arithmetic_of(dtype) for dtype in ("q8_0", "bfloat16", "none")] == ["float32", "bfloat16", "float32"]
