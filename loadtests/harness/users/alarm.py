"""Call a function at an exact time, from the event loop.

The loop's own timers are accurate to a millisecond, the resolution of epoll. On Linux a timerfd wakes epoll instead:
while the loop is idle, the callback starts within some ten microseconds. Elsewhere the loop's timer is used.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from time import monotonic_ns
from typing import Any

from gevent import get_hub

from enginebench.records.stage import SECOND, Nanoseconds

CLOCK_MONOTONIC, TFD_TIMER_ABSTIME = 1, 1  # <time.h>, <sys/timerfd.h>
FIRST = 2  # libev's highest priority: before all readable sockets


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class Alarm:
    """Call `callback` in the event loop itself; it must neither block nor raise."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = -1
        self._watcher: Any = None
        if hasattr(self._libc, "timerfd_create"):
            self._fd = self._libc.timerfd_create(CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd >= 0:
            self._watcher = get_hub().loop.io(self._fd, 1, priority=FIRST)
            self._watcher.start(self._expired)

    def set(self, at: Nanoseconds) -> None:
        """Call back once when the monotonic clock reads `at`, or at once if that has passed."""
        if self._fd >= 0:
            seconds, rest = divmod(max(1, at), SECOND)
            value = _Itimerspec(_Timespec(0, 0), _Timespec(seconds, rest))
            self._libc.timerfd_settime(self._fd, TFD_TIMER_ABSTIME, ctypes.byref(value), None)
            return
        if self._watcher is not None:
            self._watcher.close()
        self._watcher = get_hub().loop.timer(max(0.0, (at - monotonic_ns()) / SECOND), priority=FIRST)
        self._watcher.start(self._callback)

    def close(self) -> None:
        if self._watcher is not None:
            self._watcher.close()
            self._watcher = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _expired(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:  # it has been set again since
            return
        self._callback()
