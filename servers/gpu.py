"""GPU metrics from NVML. A thread reads them once a second; a scrape returns the last reading.

"Utilisation" only means that some kernel was running. Devices with GPM (Hopper and later) also report `dram_activity`,
`sm_activity` and `tensor_activity`: the share of memory bandwidth, multiprocessors and tensor cores in use between two
readings. What a device does not report is absent, never 0; without a GPU or a driver there are no GPU metrics.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

PREFIX = "enginebench_gpu_"

Nvml = Any  # the module `pynvml`, or a recording of one: it has no types
Handle = Any

log = logging.getLogger("enginebench.gpu")


@dataclass(frozen=True, slots=True)
class Quantity:
    """One value per GPU. `read` raises `NVMLError` where the device does not report it."""

    name: str
    help: str
    read: Callable[[Nvml, Handle], float]
    counter: bool = False


def _temperature(nvml: Nvml, gpu: Handle) -> float:
    try:
        return float(nvml.nvmlDeviceGetTemperatureV(gpu, nvml.NVML_TEMPERATURE_GPU))
    except nvml.NVMLError:  # drivers before CUDA 12.8 have only the older function
        return float(nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU))


QUANTITIES = (
    Quantity(
        "utilization_ratio",
        "Share of time in which a kernel was running.",
        lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100,
    ),
    Quantity(
        "memory_utilization_ratio",
        "Share of time in which device memory was read or written.",
        lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).memory / 100,
    ),
    Quantity("memory_used_bytes", "Device memory in use.", lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used),
    Quantity("memory_total_bytes", "Total device memory.", lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).total),
    Quantity("power_watts", "Power draw.", lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3),
    Quantity(
        "power_limit_watts", "Power limit in force.", lambda nvml, gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1e3
    ),
    Quantity(
        "energy_joules",
        "Energy used since the driver was loaded.",
        lambda nvml, gpu: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3,
        counter=True,
    ),
    Quantity("temperature_celsius", "Temperature of the chip.", _temperature),
    Quantity(
        "sm_clock_hertz",
        "Clock rate of the multiprocessors.",
        lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM) * 1e6,
    ),
    Quantity(
        "memory_clock_hertz",
        "Clock rate of the memory.",
        lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM) * 1e6,
    ),
    Quantity(
        "pcie_sent_bytes_per_second",
        "PCIe traffic from the GPU, over 20 ms.",
        lambda nvml, gpu: nvml.nvmlDeviceGetPcieThroughput(gpu, nvml.NVML_PCIE_UTIL_TX_BYTES) * 1e3,
    ),
    Quantity(
        "pcie_received_bytes_per_second",
        "PCIe traffic to the GPU, over 20 ms.",
        lambda nvml, gpu: nvml.nvmlDeviceGetPcieThroughput(gpu, nvml.NVML_PCIE_UTIL_RX_BYTES) * 1e3,
    ),
)

# Metric name -> NVML constant (per cent, over the time between two samples) and help.
ACTIVITIES = {
    "sm_activity_ratio": ("NVML_GPM_METRIC_SM_UTIL", "Share of multiprocessors in use."),
    "dram_activity_ratio": ("NVML_GPM_METRIC_DRAM_BW_UTIL", "Share of the memory bandwidth in use."),
    "tensor_activity_ratio": ("NVML_GPM_METRIC_ANY_TENSOR_UTIL", "Share of time in which tensor cores were in use."),
}

THROTTLES = {
    "power_cap": "nvmlClocksEventReasonSwPowerCap",
    "software_thermal": "nvmlClocksEventReasonSwThermalSlowdown",
    "hardware_thermal": "nvmlClocksEventReasonHwThermalSlowdown",
    "hardware_slowdown": "nvmlClocksEventReasonHwSlowdown",
    "power_brake": "nvmlClocksEventReasonHwPowerBrakeSlowdown",
}


@dataclass(frozen=True, slots=True)
class Reading:
    """One GPU at one moment."""

    values: Mapping[str, float] = field(default_factory=dict)  # by the names of QUANTITIES and ACTIVITIES
    throttles: Mapping[str, bool] | None = None


class Gpu:
    """One device."""

    def __init__(self, nvml: Nvml, index: int) -> None:
        self._nvml = nvml
        self._handle = nvml.nvmlDeviceGetHandleByIndex(index)
        self.index = str(index)
        self.name = str(self._read(nvml.nvmlDeviceGetName) or "unknown")
        self.uuid = str(self._read(nvml.nvmlDeviceGetUUID) or "")
        self._gpm_sample: Any = self._first_gpm_sample()

    def read(self) -> Reading:
        values: dict[str, float] = {}
        for quantity in QUANTITIES:
            value = self._read(partial(quantity.read, self._nvml))
            if value is not None:
                values[quantity.name] = float(value)
        reasons = self._read(self._nvml.nvmlDeviceGetCurrentClocksEventReasons)
        throttles = None
        if reasons is not None:
            throttles = {name: bool(reasons & getattr(self._nvml, bit)) for name, bit in THROTTLES.items()}
        return Reading(values | self._activities(), throttles)

    def _read(self, query: Callable[[Handle], Any]) -> Any:
        """The value, or `None` where the device or driver does not report it."""
        try:
            return query(self._handle)
        except self._nvml.NVMLError:
            return None

    def _first_gpm_sample(self) -> Any:
        supported = self._read(self._nvml.nvmlGpmQueryDeviceSupport)
        if supported is None or not supported.isSupportedDevice:
            return None
        return self._read(self._gpm_sample_now)

    def _gpm_sample_now(self, gpu: Handle) -> Any:
        sample = self._nvml.nvmlGpmSampleAlloc()
        try:
            self._nvml.nvmlGpmSampleGet(gpu, sample)
        except self._nvml.NVMLError:
            self._nvml.nvmlGpmSampleFree(sample)
            raise
        return sample

    def _activities(self) -> dict[str, float]:
        if self._gpm_sample is None or (now := self._read(self._gpm_sample_now)) is None:
            return {}
        before, self._gpm_sample = self._gpm_sample, now
        wanted = self._nvml.c_nvmlGpmMetricsGet_t()
        wanted.version = self._nvml.NVML_GPM_METRICS_GET_VERSION
        wanted.sample1, wanted.sample2 = before, now
        wanted.numMetrics = len(ACTIVITIES)
        for place, (constant, _) in enumerate(ACTIVITIES.values()):
            wanted.metrics[place].metricId = getattr(self._nvml, constant)
        answered = self._read(lambda gpu: self._nvml.nvmlGpmMetricsGet(wanted))
        self._read(lambda gpu: self._nvml.nvmlGpmSampleFree(before))
        if answered is None:
            return {}
        found = zip(ACTIVITIES, answered.metrics, strict=False)
        return {name: metric.value / 100 for name, metric in found if metric.nvmlReturn == self._nvml.NVML_SUCCESS}


class GpuCollector(Collector):
    """All GPUs of this machine. `start` and `stop` the thread that reads them; without a GPU there is no thread."""

    def __init__(self, period: float = 1.0, nvml: Nvml | None = None) -> None:
        self._period = period
        self._nvml = nvml
        self._gpus: list[Gpu] = []
        self._driver = ""
        self._readings: dict[str, Reading] = {}
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._nvml is None:
            import pynvml

            self._nvml = pynvml
        nvml = self._nvml
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:  # no driver
            log.info("no GPU metrics: %s", error)
            return
        try:
            self._driver = str(nvml.nvmlSystemGetDriverVersion())
            self._gpus = [Gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
        except nvml.NVMLError as error:
            log.warning("no GPU metrics: %s", error)
        if self._gpus:
            self.sample()
            self._thread = threading.Thread(target=self._run, name="gpu metrics", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def sample(self) -> None:
        """Read every GPU now."""
        self._readings = {gpu.index: gpu.read() for gpu in self._gpus}

    def _run(self) -> None:
        while not self._stopping.wait(self._period):
            self.sample()

    def collect(self) -> Iterator[Metric]:
        readings = self._readings  # replaced by the thread, never modified
        if not readings:
            return
        info = InfoMetricFamily(PREFIX.rstrip("_"), "The GPUs of this machine.")
        for gpu in self._gpus:
            info.add_metric([], {"gpu": gpu.index, "name": gpu.name, "uuid": gpu.uuid, "driver": self._driver})
        yield info
        for name, help, kind in _families():
            family = kind(PREFIX + name, help, labels=["gpu"])
            for index, reading in readings.items():
                if name in reading.values:
                    family.add_metric([index], reading.values[name])
            if family.samples:
                yield family
        yield from self._throttled(readings)

    @staticmethod
    def _throttled(readings: Mapping[str, Reading]) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            PREFIX + "throttled", "1 while clock rates are reduced for this reason.", labels=["gpu", "reason"]
        )
        for index, reading in readings.items():
            for reason, held in (reading.throttles or {}).items():
                family.add_metric([index, reason], float(held))
        if family.samples:
            yield family


def _families() -> Iterator[tuple[str, str, type[CounterMetricFamily] | type[GaugeMetricFamily]]]:
    for quantity in QUANTITIES:
        yield quantity.name, quantity.help, CounterMetricFamily if quantity.counter else GaugeMetricFamily
    for name, (_, help) in ACTIVITIES.items():
        yield name, help, GaugeMetricFamily
