"""NVIDIA's GPUs, from NVML: several of them, and their MIG slices."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import psutil

from servers.gpu.families import Gpu, NoDriver, Reading, Visible
from servers.gpu.gpm import Activity
from servers.gpu.xid import XidErrors

Nvml = Any  # the module `pynvml`, or a recording of one: it has no types
Handle = Any
Read = Callable[[Nvml, Handle], float]

ALL_LINKS = 0xFFFFFFFF  # the sum over NVLinks


def _temperature(nvml: Nvml, gpu: Handle) -> float:
    try:
        return float(nvml.nvmlDeviceGetTemperatureV(gpu, nvml.NVML_TEMPERATURE_GPU))
    except (nvml.NVMLError, AttributeError):  # before CUDA 12.8 there is only the older function
        return float(nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU))


def _field(name: str, scope: int = 0) -> Read:
    """One of NVML's numbered fields."""

    def read(nvml: Nvml, gpu: Handle) -> float:
        (answer,) = nvml.nvmlDeviceGetFieldValues(gpu, [(getattr(nvml, name), scope)])
        if answer.nvmlReturn != nvml.NVML_SUCCESS:
            raise nvml.NVMLError(answer.nvmlReturn)
        wide = answer.valueType == nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
        return float(answer.value.ullVal if wide else answer.value.uiVal)

    return read


# Each raises `NVMLError` where the device does not report it. In base units.
OF_MEMORY: dict[str, Read] = {
    "memory_used_bytes": lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used,
    "memory_total_bytes": lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).total,
}
OF_USE: dict[str, Read] = {
    "utilization_ratio": lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100,
    "memory_utilization_ratio": lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).memory / 100,
}
OF_BOARD: dict[str, Read] = {
    "power_watts": lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3,
    "power_limit_watts": lambda nvml, gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1e3,
    "energy_joules": lambda nvml, gpu: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3,
    "temperature_celsius": _temperature,
    "memory_temperature_celsius": _field("NVML_FI_DEV_MEMORY_TEMP"),
    "sm_clock_hertz": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM) * 1e6,
    "memory_clock_hertz": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM) * 1e6,
    "pcie_sent_bytes_per_second": lambda nvml, gpu: (
        nvml.nvmlDeviceGetPcieThroughput(gpu, nvml.NVML_PCIE_UTIL_TX_BYTES) * 1e3
    ),
    "pcie_received_bytes_per_second": lambda nvml, gpu: (
        nvml.nvmlDeviceGetPcieThroughput(gpu, nvml.NVML_PCIE_UTIL_RX_BYTES) * 1e3
    ),
    "nvlink_sent_bytes": lambda nvml, gpu: _field("NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX", ALL_LINKS)(nvml, gpu) * 1024,
    "nvlink_received_bytes": lambda nvml, gpu: (
        _field("NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX", ALL_LINKS)(nvml, gpu) * 1024
    ),
}
THROTTLES = {
    "power_cap": "nvmlClocksEventReasonSwPowerCap",
    "software_thermal": "nvmlClocksEventReasonSwThermalSlowdown",
    "hardware_thermal": "nvmlClocksEventReasonHwThermalSlowdown",
    "hardware_slowdown": "nvmlClocksEventReasonHwSlowdown",
    "power_brake": "nvmlClocksEventReasonHwPowerBrakeSlowdown",
}
ECC = {"corrected": "NVML_MEMORY_ERROR_TYPE_CORRECTED", "uncorrected": "NVML_MEMORY_ERROR_TYPE_UNCORRECTED"}


class NvmlDevice:
    """One device, or one slice: what its `quantities` say, the activity of its multiprocessors, and its processes."""

    def __init__(self, nvml: Nvml, handle: Handle, index: str, quantities: Mapping[str, Read]) -> None:
        self._nvml = nvml
        self._handle = handle
        self._quantities = quantities
        self.index = index
        self.name = str(self._ask(nvml.nvmlDeviceGetName) or "unknown")
        self.uuid = str(self._ask(nvml.nvmlDeviceGetUUID) or "")

    def read(self) -> Reading:
        values: dict[tuple[str, ...], float] = {}
        for name, read in self._quantities.items():
            value = self._ask(partial(read, self._nvml))
            if value is not None:
                values[name,] = float(value)
        return values | self._processes()

    def _ask(self, query: Callable[[Handle], Any]) -> Any:
        """The value, or `None` where the device, the driver or an older `pynvml` does not report it."""
        try:
            return query(self._handle)
        except (self._nvml.NVMLError, AttributeError):
            return None

    def _processes(self) -> dict[tuple[str, ...], float]:
        found = self._ask(self._nvml.nvmlDeviceGetComputeRunningProcesses) or ()
        return {
            ("process_memory_bytes", str(process.pid), _name(process.pid)): float(process.usedGpuMemory)
            for process in found
            if process.usedGpuMemory is not None  # in a container, unless it shares the host's process ids
        }


class Board(NvmlDevice):
    """A whole device: power, heat, links, errors. If it has slices, they report memory and utilisation, so that sums
    over GPUs count nothing twice."""

    def __init__(self, nvml: Nvml, number: int, errors: XidErrors) -> None:
        handle = nvml.nvmlDeviceGetHandleByIndex(number)
        self._errors = errors
        self._sliced = _is_sliced(nvml, handle)
        quantities = OF_BOARD if self._sliced else OF_USE | OF_MEMORY | OF_BOARD
        super().__init__(nvml, handle, str(number), quantities)
        self._activity = None if self._sliced else Activity(nvml, handle)
        errors.watch(handle)

    def read(self) -> Reading:
        activity = {} if self._activity is None else self._activity.since_last()
        return {**super().read(), **activity, **self._throttled(), **self._ecc(), **self._errors.of(self.index)}

    def slices(self) -> Iterator[Slice]:
        if not self._sliced:
            return
        for place in range(self._ask(self._nvml.nvmlDeviceGetMaxMigDeviceCount) or 0):
            found = self._ask(partial(self._slice_at, place))
            if found is not None:  # slices need not be numbered without gaps
                yield Slice(self._nvml, self._handle, found, self.index)

    def _slice_at(self, place: int, gpu: Handle) -> Handle:
        return self._nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, place)

    def _throttled(self) -> dict[tuple[str, ...], float]:
        reasons = self._ask(lambda gpu: self._nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu))
        if reasons is None:
            return {}
        return {("throttled", name): float(bool(reasons & getattr(self._nvml, bit))) for name, bit in THROTTLES.items()}

    def _ecc(self) -> dict[tuple[str, ...], float]:
        values: dict[tuple[str, ...], float] = {}
        for kind, constant in ECC.items():
            which = getattr(self._nvml, constant)
            count = self._ask(partial(self._count_errors, which))
            if count is not None:
                values["ecc_errors", kind] = float(count)
        return values

    def _count_errors(self, which: int, gpu: Handle) -> int:
        count: int = self._nvml.nvmlDeviceGetTotalEccErrors(gpu, which, self._nvml.NVML_VOLATILE_ECC)
        return count


class Slice(NvmlDevice):
    """A MIG slice. It has memory and activity of its own; NVML reports no utilisation of it."""

    def __init__(self, nvml: Nvml, board: Handle, handle: Handle, number: str) -> None:
        instance = nvml.nvmlDeviceGetGpuInstanceId(handle)
        super().__init__(nvml, handle, f"{number}:{instance}", OF_MEMORY)
        self._activity = Activity(nvml, board, instance)

    def read(self) -> Reading:
        return {**super().read(), **self._activity.since_last()}


class NvmlDriver:
    """`nvml` is for tests: by default the module `pynvml`."""

    def __init__(self, nvml: Nvml = None, environment: Mapping[str, str] = os.environ) -> None:
        if nvml is None:
            import pynvml

            nvml = pynvml
        self._nvml = nvml
        self._visible = Visible(environment, "CUDA_VISIBLE_DEVICES")
        self.version = ""

    def open(self) -> list[Gpu]:
        nvml = self._nvml
        try:
            nvml.nvmlInit()
            self.version = str(nvml.nvmlSystemGetDriverVersion())
            errors = XidErrors(nvml)
            boards = [Board(nvml, number, errors) for number in range(nvml.nvmlDeviceGetCount())]
        except nvml.NVMLError as error:
            raise NoDriver(str(error)) from None
        gpus: list[Gpu] = []
        for board in boards:
            slices = list(board.slices())
            if self._visible.names_slices():
                slices = [part for part in slices if self._visible.holds(part.index, part.uuid)]
                gpus += [board, *slices] if slices else []
            elif self._visible.holds(board.index, board.uuid):
                gpus += [board, *slices]
        return gpus


def _is_sliced(nvml: Nvml, handle: Handle) -> bool:
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(handle)
    except nvml.NVMLError:
        return False
    return bool(current == nvml.NVML_DEVICE_MIG_ENABLE)


def _name(pid: int) -> str:
    try:
        return psutil.Process(pid).name()
    except psutil.Error:
        return "unknown"
