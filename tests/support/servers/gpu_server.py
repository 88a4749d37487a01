"""The `/metrics` of a server on a machine with one GPU: the project's own metrics code over a scripted driver.

Tokens and energy grow with the same clock, so their ratio is known: `GPU_JOULES_PER_TOKEN`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
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

INFO = EngineInfo(GPU_ENGINE, "1.2.3", "python", "a-model", "bfloat16", "cuda:0", "continuous", 256, 8192)
STATS = EngineStats(memory_bytes=3 * GIB, device_memory_bytes=60 * GIB, kv_cache_usage=0.42)


class ScriptedDriver:
    """A Hopper GPU that is always equally busy and had one Xid. Constants and structures are the real module's."""

    def __init__(self, since: float) -> None:
        xids = [SimpleNamespace(device=0, eventData=13)]

        def grown(per_second: float) -> int:
            return int((time.monotonic() - since) * per_second)

        def fields(gpu: int, asked: list[tuple[int, int]]) -> list[SimpleNamespace]:
            wide = asked[0][0] != pynvml.NVML_FI_DEV_MEMORY_TEMP
            kind = pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG if wide else pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
            value = SimpleNamespace(ullVal=grown(1e6), uiVal=55)  # KiB, or degrees
            return [SimpleNamespace(nvmlReturn=pynvml.NVML_SUCCESS, valueType=kind, value=value)]

        def next_xid(events: object, milliseconds: int) -> SimpleNamespace:
            if not xids:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
            return xids.pop()

        def gpm(wanted: Any) -> Any:
            for metric in wanted.metrics[: wanted.numMetrics]:
                metric.value, metric.nvmlReturn = 55.0, pynvml.NVML_SUCCESS
            return wanted

        no_mig = (pynvml.NVML_DEVICE_MIG_DISABLE, pynvml.NVML_DEVICE_MIG_DISABLE)
        answers: dict[str, Any] = {
            "SystemGetDriverVersion": "600.1",
            "DeviceGetCount": 1,
            "DeviceGetName": "Scripted GPU",
            "DeviceGetUUID": "GPU-0",
            "DeviceGetUtilizationRates": SimpleNamespace(gpu=97, memory=61),
            "DeviceGetMemoryInfo": SimpleNamespace(used=66 * GIB, total=80 * GIB),
            "DeviceGetPowerUsage": int(WATTS * 1e3),
            "DeviceGetEnforcedPowerLimit": 700_000,
            "DeviceGetTemperatureV": 64,
            "DeviceGetClockInfo": 1980,
            "DeviceGetPcieThroughput": 1200,
            "DeviceGetCurrentClocksEventReasons": int(pynvml.nvmlClocksEventReasonSwPowerCap),
            "DeviceGetMigMode": no_mig,
            "DeviceGetComputeRunningProcesses": [SimpleNamespace(pid=os.getpid(), usedGpuMemory=60 * GIB)],
            "DeviceGetTotalEccErrors": 0,
            "EventSetCreate": object(),
            "GpmQueryDeviceSupport": SimpleNamespace(isSupportedDevice=1),
            **dict.fromkeys(("Init", "DeviceRegisterEvents", "GpmSampleGet", "GpmSampleFree")),
        }
        self._calls: dict[str, Callable[..., Any]] = {
            **{f"nvml{name}": lambda *_, answer=answer: answer for name, answer in answers.items()},
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetTotalEnergyConsumption": lambda gpu: grown(WATTS * 1e3),
            "nvmlDeviceGetFieldValues": fields,
            "nvmlEventSetWait": next_xid,
            "nvmlGpmSampleAlloc": lambda: pynvml.c_nvmlGpmSample_t(),
            "nvmlGpmMetricsGet": gpm,
        }

    def __getattr__(self, name: str) -> Any:
        if name in self._calls:
            return self._calls[name]
        if name.startswith("nvml") and not name.startswith(("nvmlClocksEventReason", "nvmlEventType")):
            raise AttributeError(name)  # a call without a scripted answer must not reach a real driver
        return getattr(pynvml, name)


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
