"""GPU memory of an engine's processes, as NVIDIA's driver counts it."""

from __future__ import annotations

import psutil


def device_memory_of(pid: int | None) -> int | None:
    """Bytes on all GPUs, of the process and all under it; `None` without a driver, or where they use no GPU."""
    if pid is None:
        return None
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no package, no library, no driver: each has an exception of its own
        return None
    try:
        leader = psutil.Process(pid)
        members = {leader.pid, *(child.pid for child in leader.children(recursive=True))}
        used = [
            process.usedGpuMemory
            for index in range(pynvml.nvmlDeviceGetCount())
            for process in pynvml.nvmlDeviceGetComputeRunningProcesses(pynvml.nvmlDeviceGetHandleByIndex(index))
            if process.pid in members and process.usedGpuMemory is not None
        ]
    except (pynvml.NVMLError, psutil.Error):
        return None
    finally:
        pynvml.nvmlShutdown()
    return sum(used) if used else None
