"""What is free: of the machine, of a control group with a limit, of a GPU."""

import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from engines.machine.devices import GpuMemory, _left_by_groups, free_memory, gpu_facts, gpu_memory, gpus_at
from tests.support.engines.nvml_stand_in import MB, Gpu, install


def write_group(folder: Path, limit: str, used: int, version: int = 2, cached: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    prefix = "" if version == 2 else "total_"
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{prefix}inactive_file {cached}\n{prefix}active_file {cached}\n")


def left(tmp_path: Path, membership: str) -> list[int]:
    (tmp_path / "cgroup").write_text(membership)
    return sorted(_left_by_groups(tmp_path / "cgroup", tmp_path / "fs"))


def test_the_limits_of_a_group_and_of_those_above_it_count(tmp_path: Path) -> None:
    write_group(tmp_path / "fs", "max", 9000 * MB)
    write_group(tmp_path / "fs" / "pod", str(500 * MB), 300 * MB)
    write_group(tmp_path / "fs" / "pod" / "engine", str(400 * MB), 100 * MB)
    assert left(tmp_path, "0::/pod/engine\n") == [200 * MB, 300 * MB]


def test_page_cache_in_a_groups_use_is_free(tmp_path: Path) -> None:
    write_group(tmp_path / "fs", str(500 * MB), 450 * MB, cached=100 * MB)
    assert left(tmp_path, "0::/\n") == [250 * MB]


def test_a_container_of_version_1_that_sees_its_group_as_the_root(tmp_path: Path) -> None:
    write_group(tmp_path / "fs" / "memory", str(500 * MB), 100 * MB, version=1)
    assert left(tmp_path, "4:memory:/docker/0123\n1:cpu,cpuacct:/docker/0123\n0::/docker/0123\n") == [400 * MB]


def test_without_groups_there_is_no_limit(tmp_path: Path) -> None:
    assert list(_left_by_groups(tmp_path / "none", tmp_path)) == []
    assert left(tmp_path, "0::/\n") == []


def test_free_memory_is_the_least_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=7 * MB))
    monkeypatch.setattr("engines.machine.devices._left_by_groups", lambda *paths: iter([9 * MB, 5 * MB]))
    assert free_memory() == 5 * MB
    monkeypatch.setattr("engines.machine.devices._left_by_groups", lambda *paths: iter(()))
    assert free_memory() == 7 * MB


def test_gpus_are_asked_for_as_cuda_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, [Gpu(free=at * MB, uuid=f"GPU-{at}") for at in range(8)])
    assert gpu_memory(["3", "GPU-7"]) == [GpuMemory(3 * MB, 80_000 * MB), GpuMemory(7 * MB, 80_000 * MB)]


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
