"""Xid errors: what the driver reports when something went wrong on a GPU, from a fault in a kernel to a lost device."""

from __future__ import annotations

import contextlib
from collections import Counter

from servers.gpu.families import Api, Handle, Reading


class XidErrors:
    """Count the events of all watched devices. NVML keeps them until they are read, so that none is missed."""

    def __init__(self, nvml: Api) -> None:
        self._nvml = nvml
        self._counts: Counter[tuple[str, str]] = Counter()
        try:
            self._events = nvml.nvmlEventSetCreate()
        except nvml.NVMLError:
            self._events = None

    def watch(self, handle: Handle) -> None:
        """Register a device, unless it reports no such events."""
        if self._events is None:
            return
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlDeviceRegisterEvents(handle, self._nvml.nvmlEventTypeXidCriticalError, self._events)

    def counts(self, index: str) -> Reading:
        """Return how often each Xid occurred on a device so far."""
        self._collect()
        return {("xid_errors", xid): float(count) for (gpu, xid), count in self._counts.items() if gpu == index}

    def _collect(self) -> None:
        """Take the events so far, without waiting for more."""
        if self._events is None:
            return
        try:
            while True:
                event = self._nvml.nvmlEventSetWait(self._events, 0)
                index = self._nvml.nvmlDeviceGetIndex(event.device)
                self._counts[str(index), str(int(event.eventData))] += 1
        except self._nvml.NVMLError:  # a timeout: there are no more
            return
