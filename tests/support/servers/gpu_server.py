"""The `/metrics` of a server on a machine with one GPU: the project's own metrics code over a scripted driver.

Tokens and energy grow with the same clock, so their ratio is known: `GPU_JOULES_PER_TOKEN`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pynvml
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from engines.contract.base import EngineInfo, EngineStats
from servers.gpu.collector import GpuCollector
from servers.gpu.nvml import NvmlDriver
from servers.prometheus_metrics import Metrics, Snapshot
from tests.support.loadtests.load_exporter import exported

GPU_ENGINE = "on-a-gpu"
WATTS = 512.0
TOKENS_PER_SECOND = 1000.0
GPU_JOULES_PER_TOKEN = WATTS / TOKENS_PER_SECOND
GIB = 1024**3

INFO = EngineInfo(
    name=GPU_ENGINE,
    version="1.2.3",
    language="python",
    model="a-model",
    dtype="bfloat16",
    device="cuda:0",
    batching="continuous",
    max_concurrency=256,
    context_length=8192,
)
STATS = EngineStats(memory_bytes=3 * GIB, device_memory_bytes=60 * GIB, kv_cache_usage=0.42)


class ScriptedDriver:
    """A Hopper GPU that is always equally busy and had one Xid. Constants and structures are the real module's."""

    def __init__(self, since: float) -> None:
        self._since = since
        self._told = False  # whether the Xid was reported

    def __getattr__(self, name: str) -> Any:
        if name.startswith("nvml") and not name.startswith(("nvmlClocksEventReason", "nvmlEventType")):
            raise AttributeError(name)  # a call without a scripted answer must not reach a real driver
        return getattr(pynvml, name)

    def nvmlInit(self) -> None: ...
    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlSystemGetDriverVersion(self) -> str:
        return "600.1"

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, gpu: int) -> str:
        return "Scripted GPU"

    def nvmlDeviceGetUUID(self, gpu: int) -> str:
        return "GPU-0"

    def nvmlDeviceGetUtilizationRates(self, gpu: int) -> SimpleNamespace:
        return SimpleNamespace(gpu=97, memory=61)

    def nvmlDeviceGetMemoryInfo(self, gpu: int) -> SimpleNamespace:
        return SimpleNamespace(used=66 * GIB, total=80 * GIB)

    def nvmlDeviceGetPowerUsage(self, gpu: int) -> int:
        return int(WATTS * 1e3)

    def nvmlDeviceGetEnforcedPowerLimit(self, gpu: int) -> int:
        return 700_000

    def nvmlDeviceGetTotalEnergyConsumption(self, gpu: int) -> int:
        return int((time.monotonic() - self._since) * WATTS * 1e3)

    def nvmlDeviceGetTemperatureV(self, gpu: int, sensor: int) -> int:
        return 64

    def nvmlDeviceGetClockInfo(self, gpu: int, clock: int) -> int:
        return 1980

    def nvmlDeviceGetPcieThroughput(self, gpu: int, direction: int) -> int:
        return 1200

    def nvmlDeviceGetCurrentClocksEventReasons(self, gpu: int) -> int:
        return int(pynvml.nvmlClocksEventReasonSwPowerCap)

    def nvmlDeviceGetMigMode(self, gpu: int) -> tuple[int, int]:
        return (pynvml.NVML_DEVICE_MIG_DISABLE, pynvml.NVML_DEVICE_MIG_DISABLE)

    def nvmlDeviceGetComputeRunningProcesses(self, gpu: int) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=os.getpid(), usedGpuMemory=60 * GIB)]

    def nvmlDeviceGetTotalEccErrors(self, gpu: int, kind: int, since: int) -> int:
        return 0

    def nvmlDeviceGetFieldValues(self, gpu: int, fields: list[tuple[int, int]]) -> list[SimpleNamespace]:
        kibibytes = int((time.monotonic() - self._since) * 1e6)
        value = SimpleNamespace(ullVal=kibibytes, uiVal=55)
        wide = fields[0][0] != pynvml.NVML_FI_DEV_MEMORY_TEMP
        kind = pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG if wide else pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
        return [SimpleNamespace(nvmlReturn=pynvml.NVML_SUCCESS, valueType=kind, value=value)]

    def nvmlEventSetCreate(self) -> object:
        return object()

    def nvmlDeviceRegisterEvents(self, gpu: int, kinds: int, events: object) -> None: ...
    def nvmlEventSetWait(self, events: object, milliseconds: int) -> SimpleNamespace:
        if self._told:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
        self._told = True
        return SimpleNamespace(device=0, eventData=13)

    def nvmlGpmQueryDeviceSupport(self, gpu: int) -> SimpleNamespace:
        return SimpleNamespace(isSupportedDevice=1)

    def nvmlGpmSampleAlloc(self) -> Any:
        return pynvml.c_nvmlGpmSample_t()

    def nvmlGpmSampleGet(self, gpu: int, sample: Any) -> None: ...
    def nvmlGpmSampleFree(self, sample: Any) -> None: ...
    def nvmlGpmMetricsGet(self, wanted: Any) -> Any:
        for metric in wanted.metrics[: wanted.numMetrics]:
            metric.value, metric.nvmlReturn = 55.0, pynvml.NVML_SUCCESS
        return wanted


class BusyServer(Collector):
    """The collectors of a server that generates tokens and uses energy at a constant rate."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._metrics = Metrics(GPU_ENGINE, lambda: Snapshot(12, 0, True, 0, 1, INFO))
        self._metrics.engine_stats = STATS
        self.gpus = GpuCollector(drivers=[NvmlDriver(ScriptedDriver(self._since), {})])

    def collect(self) -> Iterator[Metric]:
        self._metrics.generation_tokens = int((time.monotonic() - self._since) * TOKENS_PER_SECOND)
        self.gpus.sample()
        yield from self._metrics.collect()
        yield from self.gpus.collect()


@contextmanager
def gpu_server() -> Iterator[str]:
    """Serve `/metrics` on loopback, and yield its `host:port`."""
    busy = BusyServer()
    busy.gpus.start()
    try:
        with exported(busy) as address:
            yield address
    finally:
        busy.gpus.stop()
