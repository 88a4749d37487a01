"""Memory of NVIDIA GPUs that an engine's processes hold, now and at its peak, for engines that do not report their own.

By process, as NVML counts it. In a container without the host's process ids that finds none: then it is the
growth in use of the engine's GPUs since before it started, which is the same if no other program uses them.
"""

from __future__ import annotations

from collections.abc import Sequence

from engines.machine.devices import device_memory_of, gpu_memory


class DeviceMemory:
    def __init__(self, gpus: Sequence[str]) -> None:
        """Before the engine's process is started. `gpus` that it may use, as CUDA_VISIBLE_DEVICES names them."""
        self._gpus, self._before = gpus, _used(gpus)
        self.peak: int | None = None  # of all looks

    def look(self, pid: int | None, gpus: Sequence[str]) -> int | None:
        """Return bytes that it holds, as far as the process does not tell on those `gpus` that it computes on; `None`
        if neither way tells."""
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
