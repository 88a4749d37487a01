"""GPU memory of an engine's processes, as NVIDIA's driver counts it."""

from __future__ import annotations

import psutil

from engines.machine.nvml import NoAnswer, driver


def device_memory_of(pid: int | None) -> int | None:
    """Bytes on all GPUs, of the process and all under it; `None` without a driver, or where they use no GPU."""
    if pid is None:
        return None
    try:
        leader = psutil.Process(pid)
        members = {leader.pid, *(child.pid for child in leader.children(recursive=True))}
        with driver() as nvml:
            used = [
                process.usedGpuMemory
                for index in range(nvml.nvmlDeviceGetCount())
                for process in nvml.nvmlDeviceGetComputeRunningProcesses(nvml.nvmlDeviceGetHandleByIndex(index))
                if process.pid in members and process.usedGpuMemory is not None
            ]
    except (NoAnswer, psutil.Error):
        return None
    return sum(used) if used else None
