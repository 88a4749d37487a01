"""GPUs by the names of CUDA, and their facts."""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from engines.machine import devices
from engines.machine.devices import gpu_facts, gpus_at
from engines.machine.memory import gpu_memory
from tests.support.engines.nvml_stand_in import MB, Gpu, install


@pytest.mark.parametrize(
    ("device", "count", "visible", "expected"),
    [
        pytest.param("cuda", 1, ["4", "5", "6"], ("4",), id="the first"),
        pytest.param("cuda:1", 1, ["4", "5", "6"], ("5",), id="the second of the visible ones"),
        pytest.param("cuda", 2, ["4", "5", "6"], ("4", "5"), id="tensor parallelism"),
        pytest.param("rocm", 1, ["2"], ("2",), id="AMD's"),
        pytest.param("cpu", 1, ["4"], (), id="none on a CPU"),
        pytest.param("none", 1, ["4"], (), id="none of an engine that computes nothing"),
        pytest.param("vulkan", 1, ["4"], None, id="not known by CUDA's names"),
        pytest.param("cuda", 0, ["4"], None, id="those of another server"),
        pytest.param("cuda", 1, [], None, id="no driver says which"),
    ],
)
def test_gpus_that_a_process_computes_on(
    device: str, count: int, visible: Sequence[str], expected: tuple[str, ...] | None
) -> None:
    assert gpus_at(device, count, visible) == expected


def test_a_gpu_of_amd_that_a_container_may_not_use_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: Path) -> str:
        raise PermissionError(1, "Operation not permitted", str(path))

    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "properties").touch()
    monkeypatch.setattr(devices, "GPUS_OF_AMD", tmp_path)
    monkeypatch.setattr(Path, "read_text", denied)
    assert devices.amd_gpus({}) == []


def test_the_beginning_of_a_uuid_names_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, [Gpu((9, 0), uuid="GPU-a1-2"), Gpu((7, 5), uuid="GPU-b1-2")])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-b1")
    assert devices.compute_capability("cuda") == (7, 5)


def test_without_a_driver_nothing_is_known_of_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpu_memory(["0"]) == []
    assert gpu_facts() == []


def test_a_slice_of_a_gpu_without_a_power_limit_is_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, [Gpu(), Gpu()])
    nvml = sys.modules["pynvml"]

    def limit(gpu: Gpu) -> int:
        raise RuntimeError("Not Supported")

    monkeypatch.setattr(nvml, "nvmlDeviceGetName", lambda gpu: "H100 MIG 1g.10gb", raising=False)
    monkeypatch.setattr(nvml, "nvmlDeviceGetEnforcedPowerLimit", limit, raising=False)
    expected = {"name": "H100 MIG 1g.10gb", "driver": "580.95.05", "memory": 80_000 * MB, "power_limit": None}
    assert gpu_facts() == [expected, expected]
    monkeypatch.setattr(nvml, "nvmlDeviceGetMemoryInfo", limit)  # GB10 shares the machine's
    assert gpu_facts() == [expected | {"memory": None}] * 2
