"""Free memory of the machine, of a control group with a limit and of a GPU; GPU memory that an engine holds."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from engines.machine.memory import DeviceMemory, GpuMemory, _left_by_groups, free_memory, gpu_memory
from engines.models.fetch import fetch_model
from engines.process.supervisor import ChildEngine
from tests.support.engines.children import QUICK
from tests.support.engines.nvml_stand_in import MB, Gpu, install
from tests.support.engines.torch_when_used import torch


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
    monkeypatch.setattr("engines.machine.memory._left_by_groups", lambda *paths: iter([9 * MB, 5 * MB]))
    assert free_memory() == 5 * MB
    monkeypatch.setattr("engines.machine.memory._left_by_groups", lambda *paths: iter(()))
    assert free_memory() == 7 * MB


def test_gpus_are_asked_for_as_cuda_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, [Gpu(free=at * MB, uuid=f"GPU-{at}") for at in range(8)])
    assert gpu_memory(["3", "GPU-7"]) == [GpuMemory(3 * MB, 80_000 * MB), GpuMemory(7 * MB, 80_000 * MB)]


def test_by_process_with_its_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(processes={1: 500 * MB})
    install(monkeypatch, [gpu])
    memory = DeviceMemory(["0"])
    assert memory.look(os.getpid(), ["0"]) is None
    for used in (2000, 6000, 3000):
        gpu.processes[os.getpid()] = used * MB
        assert memory.look(os.getpid(), ["0"]) == used * MB
    assert memory.peak == 6000 * MB


@pytest.mark.parametrize("processes", [{}, {70_123: 4000 * MB}], ids=["no processes", "process ids of the host"])
def test_in_a_container_by_what_its_gpus_hold(
    processes: dict[int, int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Gpu(), Gpu(free=10_000 * MB, processes=processes)
    install(monkeypatch, [first, second])
    memory = DeviceMemory(["0", "1"])
    first.free -= 9000 * MB  # another engine's, which was started later
    assert memory.look(os.getpid(), ["1"]) is None
    second.free -= 4000 * MB
    assert memory.look(os.getpid(), ["1"]) == 4000 * MB
    second.free += 1000 * MB
    assert (memory.look(os.getpid(), ["1"]), memory.peak) == (3000 * MB, 4000 * MB)


def test_without_a_gpu_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, [])
    assert DeviceMemory([]).look(os.getpid(), []) is None


async def test_a_supervised_engine_keeps_the_peak_between_two_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu()
    install(monkeypatch, [gpu])
    engine = ChildEngine("fake", fetch_model(), {}, watch=QUICK)
    engine.info = replace(await engine.start(), device="cuda")
    assert engine.pid is not None
    for used in (5000, 1000):
        gpu.processes[engine.pid] = used * MB
        await asyncio.sleep(3 * QUICK.heartbeat + 0.1)
    stats = await engine.stats()
    assert (stats.device_memory_bytes, stats.device_memory_peak_bytes) == (1000 * MB, 5000 * MB)
    await engine.stop()


@pytest.mark.gpu
def test_torch_and_the_driver_count_alike() -> None:
    """1 GiB of a process: torch's own peak is exact, the driver's adds the context and rounds."""
    memory = DeviceMemory(["0"])
    torch.zeros(1, device="cuda:0")  # the context, of some hundred megabytes
    before = memory.look(os.getpid(), ["0"]) or 0
    held = torch.empty(1 << 30, dtype=torch.uint8, device="cuda:0")
    assert torch.cuda.max_memory_allocated("cuda:0") >= held.nbytes
    now = memory.look(os.getpid(), ["0"])
    assert now is not None
    assert now - before == pytest.approx(held.nbytes, rel=0.05)
