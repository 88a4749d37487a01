"""`device=auto` never measures the CPU of a machine with a GPU, and `dtype=auto` is the same for every engine."""

from pathlib import Path

import pytest

from engines.contract.base import Model
from engines.contract.errors import EngineUnavailable
from engines.contract.registry import engine_class
from engines.machine import devices
from engines.machine.devices import automatic_dtype
from engines.pytorch.device import chosen_device, dtype_name, expected_device
from engines.transformers import TransformersEngine, TransformersOptions
from tests.support.engines.nvml_stand_in import Gpu, install
from tests.support.engines.torch_when_used import torch

pytestmark = pytest.mark.xdist_group("torch")


@pytest.fixture
def a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, [Gpu()])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def initialise_with(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def init() -> None:
        raise error

    monkeypatch.setattr(torch.cuda, "init", init)
    monkeypatch.setattr(torch.version, "cuda", "13.0")


def test_a_driver_that_torch_cannot_use_is_named(a_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    too_old = "The NVIDIA driver on your system is too old (found version 12040). Please update.\nAnd more."
    initialise_with(monkeypatch, RuntimeError(too_old))
    with pytest.raises(EngineUnavailable, match=r"cannot use it: The NVIDIA driver on your system is too old .*cpu\.$"):
        chosen_device("auto")
    with pytest.raises(EngineUnavailable, match="there is no device `cuda:1`: the driver reports a GPU, and torch"):
        chosen_device("cuda:1")


def test_a_build_without_cuda_is_named(a_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(EngineUnavailable, match=r"is a build without CUDA; .* say so with -o device=cpu"):
        chosen_device("auto")
    assert chosen_device("cpu").type == "cpu"


def test_a_container_without_nvidias_toolkit_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, [])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(devices, "GPUS_OF_LINUX", tmp_path)
    assert chosen_device("auto").type == "cpu", "Linux has no GPU either"
    (tmp_path / "0000:18:00.0").mkdir()
    with pytest.raises(EngineUnavailable, match="a container needs NVIDIA's container toolkit and `--gpus all`"):
        chosen_device("auto")
    monkeypatch.setattr(torch.version, "cuda", None)
    assert chosen_device("auto").type == "cpu", "a container that was made for the CPU"


@pytest.mark.parametrize(("wanted", "expected"), [("auto", 0), ("cuda", 0), ("cuda:1", 1)])
def test_the_device_has_a_number_for_torch_to_set(wanted: str, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's own `set_device` refuses a device without one; below it are two GPUs, made up."""
    current: list[int] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "made up")
    monkeypatch.setattr(torch._C, "_cuda_setDevice", current.append, raising=False)
    monkeypatch.setattr(torch.cuda, "_check_stray_context", lambda device: None, raising=False)
    engine = TransformersEngine(Model("made up", Path()), TransformersOptions(device=wanted))
    engine.open_device()
    assert current == [expected]
    assert str(engine._device) == f"cuda:{expected}"


def test_gpus_that_are_hidden_from_the_process_are_not_missed(a_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert (chosen_device("auto").type, expected_device("auto")) == ("cpu", "cpu")


def test_a_build_without_rocm_is_named_beside_an_amd_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, [])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(devices, "GPUS_OF_AMD", tmp_path)
    for node, units in enumerate((0, 304, 304)):  # a CPU and two GPUs
        (tmp_path / str(node)).mkdir()
        (tmp_path / str(node) / "properties").write_text(f"cpu_cores_count 0\nsimd_count {units}\nmem_banks_count 1\n")
    assert (devices.amd_gpus(), expected_device("auto")) == (["0", "1"], "cuda")
    with pytest.raises(EngineUnavailable, match=r"an AMD GPU, and torch .* is a build without ROCm; .* device=cpu"):
        chosen_device("auto")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "")
    assert (devices.amd_gpus(), chosen_device("auto").type) == ([], "cpu")


@pytest.mark.parametrize(
    ("device", "sentence"),
    [
        ("mps", "there is no device `mps`: it is that of Apple's processors"),
        ("tpu9", "there is no device `tpu9`; use cpu, cuda or cuda:<number>"),
        ("cuda:99", "there is no device `cuda:99`: torch finds 0 CUDA devices"),
    ],
)
def test_a_device_that_is_not_there_gets_a_sentence(device: str, sentence: str) -> None:
    with pytest.raises(EngineUnavailable, match=sentence):
        chosen_device(device)


@pytest.mark.parametrize(
    ("device", "capability", "expected"),
    [
        ("cuda", (9, 0), "bfloat16"),
        ("cuda", (8, 0), "bfloat16"),
        ("cuda:1", (7, 5), "float16"),
        ("cuda", None, "bfloat16"),
        ("rocm", None, "bfloat16"),
        ("mps", None, "float16"),
        ("cpu", None, "float32"),
    ],
)
def test_the_automatic_number_format(device: str, capability: tuple[int, int] | None, expected: str) -> None:
    assert automatic_dtype(device, capability=capability) == expected


@pytest.mark.parametrize("capability", [(9, 0), (7, 5)])
@pytest.mark.parametrize(
    "name", ["transformers", "cuda-graph", "vllm", "sglang", "tensorrt-llm", "candle", "burn", "mistralrs"]
)
def test_every_engine_has_the_same_one(name: str, capability: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    from engines.contract.registry import check_options
    from engines.process.memory_check import size_of_preset

    install(monkeypatch, [Gpu(capability)])
    kind, options = engine_class(name), check_options(name, {}).parsed
    monkeypatch.setattr(kind, "device_of", classmethod(lambda cls, options: "cuda"))
    need = kind.memory_need(options, size_of_preset("llama-3.2-1b"))  # type: ignore[arg-type]
    assert need is not None
    assert (need.dtype, need.device) == ("bfloat16" if capability >= (8, 0) else "float16", "cuda")


def test_the_second_gpu_has_a_format_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, [Gpu((9, 0)), Gpu((7, 0))])
    assert [dtype_name("auto", device) for device in ("cuda", "cuda:1")] == ["bfloat16", "float16"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert dtype_name("auto", "cuda") == "float16"


@pytest.mark.gpu
def test_the_driver_and_torch_agree_on_the_gpu() -> None:
    device = chosen_device("auto")
    assert device.type == "cuda"
    assert devices.compute_capability("cuda") == torch.cuda.get_device_capability(device)
