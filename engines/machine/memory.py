"""Free memory, and the memory that an engine's processes hold, on the machine and on NVIDIA's GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engines.machine.devices import ask_driver, gpu_handle

# Limit, use, and the page cache in that use, which is given back when it is needed: control groups of version 2 and 1.
# https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
GROUP_FILES = {
    2: ("memory.max", "memory.current", ("inactive_file", "active_file")),
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")),
}


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """Free and total memory of a GPU in bytes."""

    free: int
    total: int


def free_memory() -> int:
    """Return the available bytes of the machine or, if that is less, the bytes left by the limit of a control group."""
    import psutil

    return min([psutil.virtual_memory().available, *_left_by_groups(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))])


def _left_by_groups(membership: Path, mounted: Path) -> Iterator[int]:
    """Yield the bytes left by every group of this process that has a limit, up to the root."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0":
            root, version = mounted, 2
        elif "memory" in controllers.split(","):
            root, version = mounted / "memory", 1
        else:
            continue
        group = root / path.lstrip("/")  # a container may see its own group as the root, under its path outside
        for folder in (group, *group.parents):
            if folder.is_relative_to(root) and (left := _left(folder, version)) is not None:
                yield left


def _left(folder: Path, version: int) -> int | None:
    """Return the bytes that the group has left; `None` if it has no limit."""
    limit, used, cached = GROUP_FILES[version]
    try:
        most, now = int((folder / limit).read_text()), int((folder / used).read_text())
        parts = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # no such group, or `max`
        return None
    return max(0, most - now + sum(int(parts.get(name, 0)) for name in cached))


def gpu_memory(names: Sequence[str]) -> list[GpuMemory]:
    """Return the memory of each GPU, named as in CUDA_VISIBLE_DEVICES; nothing without a driver."""

    def memory(nvml: Any) -> list[GpuMemory]:
        memories = [nvml.nvmlDeviceGetMemoryInfo(gpu_handle(nvml, name)) for name in names]
        return [GpuMemory(int(memory.free), int(memory.total)) for memory in memories]

    return ask_driver(memory, [])


def device_memory_of(pid: int | None) -> int | None:
    """Return the bytes of the process and all under it on all GPUs; `None` without a driver or if they use no GPU."""
    if pid is None:
        return None
    import psutil

    try:
        leader = psutil.Process(pid)
        members = {leader.pid, *(child.pid for child in leader.children(recursive=True))}
    except psutil.Error:
        return None

    def used(nvml: Any) -> list[int]:
        return [
            process.usedGpuMemory
            for index in range(nvml.nvmlDeviceGetCount())
            for process in nvml.nvmlDeviceGetComputeRunningProcesses(nvml.nvmlDeviceGetHandleByIndex(index))
            if process.pid in members and process.usedGpuMemory is not None
        ]

    sizes: list[int] = ask_driver(used, [])
    return sum(sizes) if sizes else None


class DeviceMemory:
    """GPU memory of an engine's processes, now and at its peak, for engines that do not report their own.

    NVML counts memory by process. In a container without the host's process ids, it finds none. Then the result is the
    growth in use of the engine's GPUs since before its start, which is the same if no other program uses them.
    """

    def __init__(self, gpus: Sequence[str]) -> None:
        """Create this before the engine's process is started. `gpus`: as CUDA_VISIBLE_DEVICES names them."""
        self._gpus, self._before = gpus, _used(gpus)
        self.peak: int | None = None

    def look(self, pid: int | None, gpus: Sequence[str]) -> int | None:
        """Return bytes that the process holds, or by which its `gpus` have grown; `None` if neither is known."""
        now = device_memory_of(pid) if self._gpus else None
        if now is None:
            grown = [used - self._before.get(name, used) for name, used in _used(gpus).items()]
            now = max(0, sum(grown)) or None
        if now is not None:
            self.peak = max(now, self.peak or 0)
        return now


def _used(gpus: Sequence[str]) -> dict[str, int]:
    """Return the bytes in use by GPU; nothing without a driver."""
    memories = gpu_memory(gpus) if gpus else []
    return {name: memory.total - memory.free for name, memory in zip(gpus, memories, strict=False)}
