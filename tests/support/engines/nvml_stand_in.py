"""A stand-in for NVIDIA's NVML with invented GPUs, which has the interface of `pynvml`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace

import pytest

MB = 1_000_000


@dataclass
class Gpu:
    """`processes`: bytes by process id, which NVML does not report in a container."""

    capability: tuple[int, int] = (9, 0)
    free: int = 79_000 * MB
    total: int = 80_000 * MB
    uuid: str = ""
    processes: dict[int, int | None] = field(default_factory=dict)


def install(monkeypatch: pytest.MonkeyPatch, gpus: Sequence[Gpu]) -> None:
    """Replace `pynvml`."""
    nvml = ModuleType("pynvml")
    by_uuid = {gpu.uuid: gpu for gpu in gpus}

    def by_its_uuid(uuid: str) -> Gpu:
        if uuid not in by_uuid:
            raise RuntimeError("Not Found")
        return by_uuid[uuid]

    for name, value in {
        "NVMLError": RuntimeError,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: "580.95.05",
        "nvmlSystemGetCudaDriverVersion_v2": lambda: 13_000,
        "nvmlDeviceGetCount": lambda: len(gpus),
        "nvmlDeviceGetHandleByIndex": lambda index: gpus[index],
        "nvmlDeviceGetHandleByUUID": by_its_uuid,
        "nvmlDeviceGetUUID": lambda gpu: gpu.uuid,
        "nvmlDeviceGetMemoryInfo": lambda gpu: SimpleNamespace(
            free=gpu.free, total=gpu.total, used=gpu.total - gpu.free
        ),
        "nvmlDeviceGetCudaComputeCapability": lambda gpu: gpu.capability,
        "nvmlDeviceGetComputeRunningProcesses": lambda gpu: [
            SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in gpu.processes.items()
        ],
    }.items():
        setattr(nvml, name, value)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
