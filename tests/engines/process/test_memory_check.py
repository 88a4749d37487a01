"""A model that will not fit is refused before anything is downloaded or loaded, by every engine, with the figures."""

from typing import Any

import pytest
from typer.testing import CliRunner

from enginebench.cli import app
from engines.contract.base import Model
from engines.contract.errors import EngineUnavailable
from engines.contract.registry import ENGINES, check_options, engine_class
from engines.machine.memory import GpuMemory
from engines.models.fetch import fetch_model
from engines.models.presets import PRESETS
from engines.models.random_model import with_weights
from engines.models.size import MemoryNeed, ModelSize
from engines.process.engine_loading import check_before_download, load_engine
from engines.process.memory_check import size_of, size_of_preset
from tests.support.engines.nvml_stand_in import Gpu, install

GB = 1_000_000_000
VALUES = 2 * 16 * 8 * 64  # kept of a token by Llama 3.2 1B: keys and values of 16 layers, 8 heads, 64 each
WITH_WEIGHTS = [name for name, spec in ENGINES.items() if spec.needs_model]
ON_GPUS = ("cuda-graph", "compile-cuda-graph", "sglang", "tensorrt-llm")  # whatever this machine has


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, [Gpu(), Gpu()])


def free(monkeypatch: pytest.MonkeyPatch, memory: float, *gpus: float) -> None:
    monkeypatch.setattr("engines.process.memory_check.free_memory", lambda: round(memory))
    known = {str(index): GpuMemory(round(each), 80 * GB) for index, each in enumerate(gpus)}
    monkeypatch.setattr("engines.process.memory_check.gpu_memory", lambda names: [known[name] for name in names])


def need(name: str, model: str, **options: str) -> MemoryNeed:
    size = size_of_preset(model)
    assert size is not None
    found = engine_class(name).memory_need(check_options(name, options).parsed, size)
    assert found is not None
    return found


@pytest.mark.parametrize("name", WITH_WEIGHTS)
def test_every_engine_refuses_what_does_not_fit(name: str, no_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"device": "cuda"} if name.endswith("cuda-graph") else {}
    if name in ON_GPUS:
        install(monkeypatch, [Gpu()])
    free(monkeypatch, 16 * GB, 16 * GB)
    with pytest.raises(
        EngineUnavailable, match=rf"^random:llama-30b does not fit: {name} needs at least .* 16\.0 GB can"
    ):
        check_before_download(name, options, "random:llama-30b")
    check_before_download(name, options | {"memory": "ignore"}, "random:llama-30b")
    free(monkeypatch, 500 * GB, 500 * GB)
    monkeypatch.setattr("engines.process.memory_check.gpu_memory", lambda names: [GpuMemory(500 * GB, 640 * GB)])
    check_before_download(name, options, "random:llama-30b")


def test_the_sentence_has_the_figures_and_the_ways_out(no_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch, 16 * GB)
    with pytest.raises(EngineUnavailable) as refused:
        check_before_download("candle", {"dtype": "float32", "replicas": "2"}, "llama-30b")
    # 32.5 × 10⁹ weights of 4 bytes; 2 × 60 layers × 6656 values of 2048 tokens, which is the whole context.
    assert str(refused.value) == (
        "llama-30b does not fit: 2 replicas of candle need at least 273.5 GB of memory (130.1 GB for weights in "
        "float32, 6.5 GB for keys and values, 0.1 GB for a step), and 16.0 GB can be used. Choose a smaller model, "
        "dtype=q4_0 or fewer `replicas`; -o memory=ignore loads it anyway."
    )


@pytest.mark.parametrize(
    ("name", "options", "weights", "cache"),
    [
        pytest.param("transformers", {"dtype": "bfloat16"}, 2.0, 4096 * 2 * VALUES, id="one sequence"),
        pytest.param("transformers", {"dtype": "float32"}, 4.0, 4096 * 4 * VALUES, id="twice as wide"),
        pytest.param(
            "transformers", {"dtype": "bfloat16", "quantization": "torchao-int8"}, 1.0, 4096 * 2 * VALUES, id="int8"
        ),
        pytest.param(
            "transformers-batching", {"dtype": "float32"}, 4.0, 16_384 * 4 * VALUES, id="what the batch allocates"
        ),
        pytest.param("pytorch-baseline", {}, 4.0, 0, id="no cache"),
        pytest.param("torch-jit", {"dtype": "float32"}, 4.0, 8 * 2048 * 4 * VALUES, id="largest batch, longest length"),
        pytest.param(
            "torch-jit", {"dtype": "float32", "lengths": "100"}, 4.0, 8 * 128 * 4 * VALUES, id="in whole chunks"
        ),
        pytest.param("mistralrs", {"dtype": "q8_0"}, 8.5 / 8, 4096 * 2 * VALUES, id="blocks of 8 bits"),
        pytest.param(
            "candle", {"dtype": "q4_0", "kv_tokens": "1000"}, 4.5 / 8, 1000 * 2 * VALUES, id="as many as are allowed"
        ),
        pytest.param("burn", {}, 4.0, 4096 * 4 * VALUES, id="float32 on a CPU"),
        pytest.param("lmrs", {}, 8.5 / 8, 4096 * 2 * VALUES, id="lmrs"),
        pytest.param("llamacpp", {"concurrency": "2"}, 2.0, 2 * 4096 * 2 * VALUES, id="all slots"),
        pytest.param("vllm", {"kv_gib": "0.5"}, 2.0, 2**29, id="in GiB"),
        pytest.param("openvino", {}, 2.0, 2**31, id="whole GiB"),
    ],
)
def test_what_an_engine_keeps(name: str, options: dict[str, str], weights: float, cache: int, no_gpu: None) -> None:
    """Of Llama 3.2 1B: bytes per weight, and bytes of the cache."""
    found = need(name, "llama-3.2-1b", **options)
    assert (found.weights, found.cache) == (round(weights * 1_235_814_400), cache)
    assert found.device == "cpu"


def test_graphs_have_a_second_cache(two_gpus: None) -> None:
    """For as many prompts as are read in one step."""
    given = {"device": "cuda", "dtype": "bfloat16", "batches": "8", "lengths": "1024"}
    caches = [need(name, "llama-3.2-1b", **given).cache for name in ("torch-jit", "cuda-graph")]
    assert caches == [8 * 1024 * 2 * VALUES, (8 + 4) * 1024 * 2 * VALUES]


def test_weights_divided_over_gpus_need_less_of_each(two_gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch, 1000 * GB, 70 * GB, 40 * GB)
    with pytest.raises(EngineUnavailable, match=r"needs at least 68\.4 GB of GPU memory .*, and 68\.0 GB can be used"):
        check_before_download("sglang", {}, "random:llama-30b")  # 0.85 of 80 GB
    check_before_download("sglang", {"tensor_parallel": "2"}, "random:llama-30b")
    free(monkeypatch, 1000 * GB, 70 * GB, 10 * GB)
    with pytest.raises(EngineUnavailable, match=r"on each of 2 GPUs .*, and 10\.0 GB can be used"):
        check_before_download("sglang", {"tensor_parallel": "2"}, "random:llama-30b")


def test_each_replica_has_a_gpu_of_its_own(two_gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch, 1000 * GB, 70 * GB, 10 * GB)
    check_before_download("cuda-graph", {"device": "cuda", "replicas": "2"}, "random:llama-3.2-3b")
    free(monkeypatch, 1000 * GB, 70 * GB, 5 * GB)
    with pytest.raises(EngineUnavailable, match=r"and 5\.0 GB can be used"):
        check_before_download("cuda-graph", {"device": "cuda:1"}, "random:llama-3.2-3b")


def test_what_is_not_known_is_not_checked(no_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch, 0)
    check_before_download("transformers", {}, "owner/a-model-on-the-hub")
    check_before_download("transformers", {"device": "xpu"}, "llama-30b")
    check_before_download("remote", {"url": "http://127.0.0.1:1/v1"}, "llama-30b")
    check_before_download("fake", {}, None)


def test_a_model_on_disk_is_measured_by_its_files(no_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    model = fetch_model()
    size = size_of(model)
    assert size is not None
    assert size.parameters == PRESETS["smollm2-135m"].parameters
    assert size_of(with_weights(fetch_model("random:llama-3.2-tiny"))).parameters == 33_948_928  # type: ignore[union-attr]
    free(monkeypatch, 100_000_000)
    with pytest.raises(
        EngineUnavailable, match=r"^smollm2-135m does not fit: torch-jit needs .* `batches` or `lengths`"
    ):
        load_engine("torch-jit", model, {"dtype": "float32"})
    load_engine("torch-jit", model, {"dtype": "float32", "memory": "ignore"})


def test_a_file_that_is_quantised_counts_as_it_is(tmp_path: Any) -> None:
    size = ModelSize("m", 1000, {"model_type": "llama"}, stored=600, gguf=700)
    assert size.need("bfloat16").weights == 600
    assert ModelSize("m", 1000, {"model_type": "llama"}, gguf=700).need("gguf").weights == 700
    assert ModelSize("m", 1000, {"model_type": "new"}).need("float32").total == 4000, "an unknown shape has no cache"


@pytest.mark.parametrize("command", [("serve", "transformers"), ("bench", "transformers")])
def test_nothing_is_downloaded_for_it(command: tuple[str, ...], no_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetched(*given: Any, **more: Any) -> Model:
        raise AssertionError("it was fetched")

    free(monkeypatch, 16 * GB)
    monkeypatch.setattr("engines.models.fetch.fetch_model", fetched)
    result = CliRunner().invoke(app, [*command, "--model", "llama-30b", "-o", "dtype=bfloat16"], env={"COLUMNS": "400"})
    assert result.exit_code == 2, result.output
    assert "llama-30b does not fit: transformers needs at least 68.4 GB of memory (65.1 GB for weights" in result.stderr
    assert "Traceback" not in result.output


def test_one_process_is_measured(no_gpu: None) -> None:
    with pytest.raises(ValueError, match="`replicas` is for `serve` and `run`"):
        load_engine("fake", options={"replicas": "2"})
