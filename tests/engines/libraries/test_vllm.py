"""What is asked of vLLM. What it answers is tested by `make test-installed`, in the tests of all engines."""

from pathlib import Path
from typing import Any

import pytest

from enginebench.settings.schema import from_text
from engines.contract.base import Launch, Model
from engines.libraries.vllm import VllmEngine, VllmOptions, core_groups
from engines.models.fetch import fetch_model
from tests.support.engines.nvml_stand_in import Gpu, install

SMALL = Model("m", Path("/models/m"))


@pytest.fixture(autouse=True)
def _not_quantised_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engines.libraries.library.config_of", lambda folder: {})


def arguments(**options: str) -> dict[str, Any]:
    return VllmEngine(SMALL, from_text(VllmOptions, options)).arguments(SMALL)


@pytest.mark.parametrize(
    ("cores", "groups", "written"),
    [
        pytest.param([0, 1, 2, 3], 1, "0,1,2,3", id="all cores compute"),
        pytest.param([0, 1, 2, 3], 2, "0,2|1,3", id="two ranks share them equally"),
        pytest.param([5], 2, "5|5", id="too few cores are shared"),
    ],
)
def test_cores_are_written_as_vllm_reads_them(cores: list[int], groups: int, written: str) -> None:
    assert core_groups(cores, groups) == written


def test_by_default_nothing_is_remembered_or_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    given = arguments()
    assert given["enable_prefix_caching"] is False
    assert given["max_num_seqs"] == 256
    assert given["kv_cache_memory_bytes"] == 2 * 1024**3
    assert "speculative_config" not in given
    assert "load_format" not in given


def test_on_a_gpu_its_memory_is_divided_by_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(VllmEngine.environment), "installed", lambda self: None)  # this machine may have one
    install(monkeypatch, [Gpu(), Gpu()])
    given = arguments(tensor_parallel="2", gpu_memory="0.8")
    assert "kv_cache_memory_bytes" not in given
    assert (given["tensor_parallel_size"], given["gpu_memory_utilization"]) == (2, 0.8)


def test_a_sequence_is_shared_by_gpus_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, [Gpu(), Gpu(), Gpu(), Gpu()])
    assert not [name for name in arguments() if "context_parallel" in name]
    asked = {"tensor_parallel": "2", "decode_context_parallel": "2", "prefill_context_parallel": "2"}
    given = arguments(**asked)
    assert (given["decode_context_parallel_size"], given["prefill_context_parallel_size"]) == (2, 2)
    assert VllmEngine.gpus_of(from_text(VllmOptions, asked)) == 4, (
        "each part of a prompt has tensor_parallel of its own"
    )


@pytest.mark.parametrize(
    ("options", "config"),
    [
        pytest.param(
            {"speculative_tokens": "4"},
            {"num_speculative_tokens": 4, "method": "ngram", "prompt_lookup_min": 2, "prompt_lookup_max": 4},
            id="from n-grams",
        ),
        pytest.param(
            {"speculative_tokens": "3", "draft_model": "/models/small"},
            {"num_speculative_tokens": 3, "method": "draft_model", "model": "/models/small"},
            id="from a smaller model",
        ),
    ],
)
def test_speculation_is_described_as_vllm_wants_it(options: dict[str, str], config: dict[str, Any]) -> None:
    assert arguments(**options)["speculative_config"] == config


@pytest.mark.parametrize("name", ["random:mamba-130m", "random:llama-3.2-tiny"])
def test_random_weights_are_made_up_by_vllm(name: str) -> None:
    model = fetch_model(name)
    given = VllmEngine(model, VllmOptions()).arguments(model)
    assert (given["load_format"], given["model"]) == ("dummy", str(model.folder))
    assert not list(model.folder.glob("*.safetensors")), "nothing is written for it"


def test_its_own_server_gets_the_same_model_format_and_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VllmEngine, "launch", classmethod(lambda *_: Launch(python="/env/bin/python")))
    options = VllmOptions(concurrency=16, context=4096, dtype="bfloat16")
    launch = VllmEngine(SMALL, options).own_server("127.0.0.1", 8123)
    assert launch is not None
    assert launch.command is not None
    assert launch.command[:3] == ("/env/bin/python", "-m", "vllm.entrypoints.openai.api_server")
    words = list(launch.command)
    given = {flag: words[words.index(flag) + 1] for flag in ("--max-num-seqs", "--max-model-len", "--dtype", "--port")}
    assert list(given.values()) == ["16", "4096", "bfloat16", "8123"]
    assert "--no-enable-prefix-caching" in words
    assert launch.environment["VLLM_NO_USAGE_STATS"] == "1"
