"""Memory of NVIDIA GPUs that an engine's processes hold, now and at its peak, for engines that do not report their own.

By process, as NVML counts it. In a container without the host's process ids that finds nobody: then it is what is used
on the engine's GPUs beyond what was used before it started, which is the same where nobody else uses them.
"""

from __future__ import annotations

from collections.abc import Sequence

from engines.machine.devices import device_memory_of, gpu_memory


class DeviceMemory:
    def __init__(self, gpus: Sequence[str]) -> None:
        """Before the engine's process is started. `gpus` as CUDA_VISIBLE_DEVICES names them."""
        self._gpus = gpus
        self._before = self._used()
        self.peak: int | None = None  # of all looks

    def look(self, pid: int | None) -> int | None:
        """Bytes; `None` without a GPU, or where neither way tells."""
        now = device_memory_of(pid) if self._gpus else None
        if now is None and (used := self._used()) is not None and self._before is not None:
            now = max(0, used - self._before) or None
        if now is not None:
            self.peak = max(now, self.peak or 0)
        return now

    def _used(self) -> int | None:
        found = gpu_memory(self._gpus) if self._gpus else []
        return sum(one.total - one.free for one in found) if found else None
