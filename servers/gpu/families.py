"""The exported metrics of a GPU, the same for all readers: names, units and labels.

"Utilisation" only means that some kernel was running. `dram_activity`, `sm_activity` and `tensor_activity` are the
shares of memory bandwidth, multiprocessors and tensor cores in use. What a device does not report is absent, never 0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

PREFIX = "enginebench_gpu_"

Key = tuple[str, ...]
"""The name of a family, and the values of its labels after `gpu`."""
Reading = Mapping[Key, float]
"""One GPU at one moment."""
Api = Any  # a vendor's module, or a recording of one: it has no types
Handle = Any
Read = Callable[[Api, Handle], Any]


@dataclass(frozen=True, slots=True)
class Family:
    name: str
    help: str
    labels: tuple[str, ...] = ()  # after `gpu`
    counter: bool = False


FAMILIES = (
    Family("utilization_ratio", "Share of time in which a kernel was running."),
    Family("memory_utilization_ratio", "Share of time in which device memory was read or written."),
    Family("memory_used_bytes", "Device memory in use."),
    Family("memory_total_bytes", "Total device memory."),
    Family("process_memory_bytes", "Device memory of a process.", ("pid", "process")),
    Family("power_watts", "Power draw."),
    Family("power_limit_watts", "Power limit in force."),
    Family("energy_joules", "Energy used since the driver was loaded.", counter=True),
    Family("temperature_celsius", "Temperature of the chip."),
    Family("memory_temperature_celsius", "Temperature of the memory."),
    Family("sm_clock_hertz", "Clock rate of the multiprocessors."),
    Family("memory_clock_hertz", "Clock rate of the memory."),
    Family("pcie_sent_bytes_per_second", "PCIe traffic from the GPU, over 20 ms."),
    Family("pcie_received_bytes_per_second", "PCIe traffic to the GPU, over 20 ms."),
    Family("nvlink_sent_bytes", "Data sent over all NVLinks.", counter=True),
    Family("nvlink_received_bytes", "Data received over all NVLinks.", counter=True),
    Family("sm_activity_ratio", "Share of multiprocessors in use."),
    Family("dram_activity_ratio", "Share of the memory bandwidth in use."),
    Family("tensor_activity_ratio", "Share of time in which tensor cores were in use."),
    Family("throttled", "1 while clock rates are reduced for this reason.", ("reason",)),
    Family("ecc_errors", "Memory errors since the driver was loaded: corrected, uncorrected.", ("kind",), counter=True),
    Family("xid_errors", "Errors that the driver reported, by Xid number, since this server started.", ("xid",), True),
)


class Device:
    """A device of a vendor's library `api`, or a MIG slice of one. `quantities` are read from it.

    `index` is the device's number; for a slice, followed by the number of its GPU instance, as in `0:3`.
    """

    errors: tuple[type[Exception], ...] = ()
    """Raised by a call if the device, its driver or an older library does not report the value."""

    def __init__(self, api: Api, handle: Handle, index: str, quantities: Mapping[Key, Read]) -> None:
        self.api, self.handle, self.index = api, handle, index
        self._quantities = quantities
        self.name, self.uuid = "unknown", ""

    def read(self) -> Reading:
        readings = ((key, self.ask(read)) for key, read in self._quantities.items())
        return {key: float(value) for key, value in readings if isinstance(value, int | float)}

    def ask(self, read: Read) -> Any:
        """Return the value; `None` if it is not reported."""
        try:
            return read(self.api, self.handle)
        except self.errors:
            return None


class Driver(Protocol):
    """A vendor's interface. `open` raises `NoDriver` if it is missing or does not work."""

    def open(self) -> list[Device]:
        """Return the GPUs that this process may use."""

    @property
    def version(self) -> str: ...


class NoDriver(Exception):
    """Why there are no metrics of this vendor's GPUs."""


def select_named(gpus: Sequence[Device], names: Collection[str] | None) -> list[Device]:
    """Return the GPUs with these names, which are numbers or the beginnings of UUIDs; `None` means all.

    A device includes all of its slices, and a MIG slice, which has only a UUID, includes its device.

    Numbers are in the driver's order, by PCI bus, as engines count them too (`engines.machine.devices.BY_BUS`).
    """
    if names is None:
        return list(gpus)
    numbers = {name for name in names if name.isdecimal()}
    uuids = tuple(name for name in names if not name.isdecimal())
    indices = {gpu.index for gpu in gpus if gpu.index in numbers or gpu.uuid.startswith(uuids)}
    boards = {_board(index) for index in indices}
    return [gpu for gpu in gpus if gpu.index in indices | boards or _board(gpu.index) in indices]


def _board(index: str) -> str:
    """Return the device of a slice: `0` of `0:3`."""
    return index.partition(":")[0]
