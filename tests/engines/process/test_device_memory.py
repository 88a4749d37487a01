"""Device memory of engines that do not report their own: by process, and in a container by what their GPUs hold."""

import asyncio
import os
from dataclasses import replace

import pytest

from engines.models.fetch import fetch_model
from engines.process.child import ChildEngine
from engines.process.device_memory import DeviceMemory
from tests.support.engines.children import QUICK
from tests.support.engines.nvml_stand_in import MB, Gpu, install


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


def test_a_supervised_engine_keeps_the_peak_between_two_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu()
    install(monkeypatch, [gpu])

    async def main() -> None:
        engine = ChildEngine("fake", fetch_model(), {}, watch=QUICK)
        engine.info = replace(await engine.start(), device="cuda")
        assert engine.pid is not None
        for used in (5000, 1000):
            gpu.processes[engine.pid] = used * MB
            await asyncio.sleep(3 * QUICK.heartbeat + 0.1)
        stats = await engine.stats()
        assert (stats.device_memory_bytes, stats.device_memory_peak_bytes) == (1000 * MB, 5000 * MB)
        await engine.stop()

    asyncio.run(main())


@pytest.mark.gpu
def test_torch_and_the_driver_count_alike() -> None:
    """1 GiB of a process: torch's own peak is exact, the driver's adds the context and rounds."""
    import torch

    memory = DeviceMemory(["0"])
    torch.zeros(1, device="cuda:0")  # the context, of some hundred megabytes
    before = memory.look(os.getpid(), ["0"]) or 0
    held = torch.empty(1 << 30, dtype=torch.uint8, device="cuda:0")
    assert torch.cuda.max_memory_allocated("cuda:0") >= held.nbytes
    now = memory.look(os.getpid(), ["0"])
    assert now is not None
    assert now - before == pytest.approx(held.nbytes, rel=0.05)
