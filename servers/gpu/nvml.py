"""Read NVIDIA GPUs and their MIG slices through NVML."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping

import psutil

from engines.machine.devices import visible_names
from servers.gpu.families import Api, Device, Handle, Key, NoDriver, Read, Reading, select_named
from servers.gpu.gpm import Activity
from servers.gpu.xid import XidErrors

logger = logging.getLogger(__name__)

ALL_LINKS = 0xFFFFFFFF  # sums over all NVLinks


def _temperature(nvml: Api, gpu: Handle) -> float:
    try:
        return float(nvml.nvmlDeviceGetTemperatureV(gpu, nvml.NVML_TEMPERATURE_GPU))
    except (nvml.NVMLError, AttributeError):  # CUDA before 12.8 has only the older function
        return float(nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU))


def _field(name: str, scope: int = 0) -> Read:
    """Return a function that reads one of NVML's numbered fields."""

    def read(nvml: Api, gpu: Handle) -> float:
        (answer,) = nvml.nvmlDeviceGetFieldValues(gpu, [(getattr(nvml, name), scope)])
        if answer.nvmlReturn != nvml.NVML_SUCCESS:
            raise nvml.NVMLError(answer.nvmlReturn)
        wide = answer.valueType == nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
        return float(answer.value.ullVal if wide else answer.value.uiVal)

    return read


def _throttled(bit: str) -> Read:
    return lambda nvml, gpu: bool(nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu) & getattr(nvml, bit))


def _ecc_errors(kind: str) -> Read:
    return lambda nvml, gpu: nvml.nvmlDeviceGetTotalEccErrors(gpu, getattr(nvml, kind), nvml.NVML_VOLATILE_ECC)


def _slice_at(index: int) -> Read:
    return lambda nvml, gpu: nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index)


THROTTLES = {
    "power_cap": "nvmlClocksEventReasonSwPowerCap",
    "software_thermal": "nvmlClocksEventReasonSwThermalSlowdown",
    "hardware_thermal": "nvmlClocksEventReasonHwThermalSlowdown",
    "hardware_slowdown": "nvmlClocksEventReasonHwSlowdown",
    "power_brake": "nvmlClocksEventReasonHwPowerBrakeSlowdown",
}
ECC = {"corrected": "NVML_MEMORY_ERROR_TYPE_CORRECTED", "uncorrected": "NVML_MEMORY_ERROR_TYPE_UNCORRECTED"}

# What NVML reports, in base units.
MEMORY: dict[Key, Read] = {
    ("memory_used_bytes",): lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used,
    ("memory_total_bytes",): lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).total,
}
UNSLICED: dict[Key, Read] = {  # NVML has these only per GPU, and a slice must not be charged for all of it
    ("power_watts",): lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3,
    ("energy_joules",): lambda nvml, gpu: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3,
    ("utilization_ratio",): lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100,
    ("memory_utilization_ratio",): lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).memory / 100,
}
BOARD: dict[Key, Read] = {
    ("power_limit_watts",): lambda nvml, gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1e3,
    ("temperature_celsius",): _temperature,
    ("memory_temperature_celsius",): _field("NVML_FI_DEV_MEMORY_TEMP"),
    ("sm_clock_hertz",): lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM) * 1e6,
    ("memory_clock_hertz",): lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM) * 1e6,
    ("pcie_sent_bytes_per_second",): lambda nvml, gpu: (
        nvml.nvmlDeviceGetPcieThroughput(gpu, nvml.NVML_PCIE_UTIL_TX_BYTES) * 1e3
    ),
    ("pcie_received_bytes_per_second",): lambda nvml, gpu: (
        nvml.nvmlDeviceGetPcieThroughput(gpu, nvml.NVML_PCIE_UTIL_RX_BYTES) * 1e3
    ),
    ("nvlink_sent_bytes",): lambda nvml, gpu: (
        _field("NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX", ALL_LINKS)(nvml, gpu) * 1024
    ),
    ("nvlink_received_bytes",): lambda nvml, gpu: (
        _field("NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX", ALL_LINKS)(nvml, gpu) * 1024
    ),
    **{("throttled", reason): _throttled(bit) for reason, bit in THROTTLES.items()},
    **{("ecc_errors", kind): _ecc_errors(constant) for kind, constant in ECC.items()},
}


class NvmlDevice(Device):
    def __init__(self, nvml: Api, handle: Handle, index: str, quantities: Mapping[Key, Read]) -> None:
        super().__init__(nvml, handle, index, quantities)
        self.errors = (nvml.NVMLError, AttributeError)  # AttributeError: not in an older `pynvml`
        self.name = str(self.ask(lambda nvml, gpu: nvml.nvmlDeviceGetName(gpu)) or self.name)
        self.uuid = str(self.ask(lambda nvml, gpu: nvml.nvmlDeviceGetUUID(gpu)) or "")

    def read(self) -> Reading:
        if ("memory_used_bytes",) not in self._quantities:  # a sliced GPU, whose slices report their own processes
            return super().read()
        processes = self.ask(lambda nvml, gpu: nvml.nvmlDeviceGetComputeRunningProcesses(gpu)) or ()
        used: dict[Key, float] = {
            ("process_memory_bytes", str(process.pid), _process_name(process.pid)): float(process.usedGpuMemory)
            for process in processes
            if process.usedGpuMemory is not None  # unknown in a container, unless it shares the host's process ids
        }
        return {**super().read(), **used}


class Board(NvmlDevice):
    """A whole GPU: power, heat, links, errors. If it has slices, those report memory and activity, so that sums over
    GPUs count nothing twice; utilisation, power and energy, which NVML has only for the whole GPU, are left out."""

    def __init__(self, nvml: Api, number: int) -> None:
        handle = nvml.nvmlDeviceGetHandleByIndex(number)
        self._xid = XidErrors(nvml, handle)
        self._sliced = _is_sliced(nvml, handle)
        quantities = BOARD if self._sliced else UNSLICED | MEMORY | BOARD
        super().__init__(nvml, handle, str(number), quantities)
        self._activity = None if self._sliced else Activity(nvml, handle)

    def read(self) -> Reading:
        activity = {} if self._activity is None else self._activity.since_last()
        return {**super().read(), **activity, **self._xid.counts()}

    def slices(self) -> Iterator[Slice]:
        if not self._sliced:
            return
        for index in range(self.ask(lambda nvml, gpu: nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)) or 0):
            device = self.ask(_slice_at(index))
            if device is not None:  # numbers of slices may have gaps
                yield Slice(self.api, self.handle, device, self.index)


class Slice(NvmlDevice):
    """A MIG slice. It has its own memory and activity; NVML does not report its utilisation."""

    def __init__(self, nvml: Api, board: Handle, handle: Handle, number: str) -> None:
        instance = nvml.nvmlDeviceGetGpuInstanceId(handle)
        super().__init__(nvml, handle, f"{number}:{instance}", MEMORY)
        self._activity = Activity(nvml, board, instance)

    def read(self) -> Reading:
        return {**super().read(), **self._activity.since_last()}


class NvmlDriver:
    """NVIDIA's driver. `nvml` is the module `pynvml`, except in tests."""

    def __init__(self, nvml: Api = None, environment: Mapping[str, str] = os.environ) -> None:
        if nvml is None:
            import pynvml

            nvml = pynvml
        self._nvml = nvml
        self._visible = visible_names(environment.get("CUDA_VISIBLE_DEVICES"))
        self.version = ""

    def open(self) -> list[Device]:
        nvml = self._nvml
        try:
            nvml.nvmlInit()
            self.version = str(nvml.nvmlSystemGetDriverVersion())
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            raise NoDriver(str(error)) from None
        parts: list[Device] = []
        for number in range(count):
            try:
                board = Board(nvml, number)
                parts += [board, *board.slices()]
            except nvml.NVMLError as error:  # a GPU has fallen off the bus; others may work
                logger.warning("GPU %d has no metrics: %s.", number, error)
        return select_named(parts, self._visible)


def _is_sliced(nvml: Api, handle: Handle) -> bool:
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(handle)
    except nvml.NVMLError:
        return False
    return bool(current == nvml.NVML_DEVICE_MIG_ENABLE)


def _process_name(pid: int) -> str:
    try:
        return psutil.Process(pid).name()
    except psutil.Error:
        return "unknown"
