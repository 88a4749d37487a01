"""Xid errors: the driver's reports of errors on a GPU, from a fault in a kernel to a lost device."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Any

from servers.gpu.families import Api, Handle, Reading


class XidErrors:
    """Count the events of a device. NVML keeps them until they are read, so that none is missed. Each device has its
    own set of events, because a lost GPU cannot be identified in a common one."""

    def __init__(self, nvml: Api, handle: Handle) -> None:
        self._nvml = nvml
        self._counts: Counter[str] = Counter()
        self._events: Any = None
        with contextlib.suppress(nvml.NVMLError):  # a device that reports no such events
            self._events = nvml.nvmlEventSetCreate()
            nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, self._events)

    def counts(self) -> Reading:
        """Return how often each Xid occurred so far."""
        with contextlib.suppress(self._nvml.NVMLError):  # a timeout: there are no more
            while self._events is not None:
                event = self._nvml.nvmlEventSetWait(self._events, 0)
                self._counts[str(int(event.eventData))] += 1
        return {("xid_errors", xid): float(count) for xid, count in self._counts.items()}
