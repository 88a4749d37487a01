"""Builds the next requests of users while they wait for their answers, many at a time.

One by one, each just when an answer has ended and others are due, they take several times the CPU time, because the
processor has something else in its caches, and the user's own next request is that much later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic_ns

import gevent

from loadtests.harness.event_loop import yield_to_io

INTERVAL = 0.2  # seconds between two bursts; who has an answer sooner builds the next request itself
BUILD_TIME = 500_000  # nanoseconds for which requests are built before the loop reads answers again


class BuildAhead:
    """One for each process with users of a closed loop."""

    def __init__(self) -> None:
        self._wanted: deque[Callable[[], None]] = deque()

    def want(self, build: Callable[[], None]) -> None:
        """`build` is called in a moment; it must do nothing where it has become superfluous, and not raise."""
        self._wanted.append(build)

    def run(self) -> None:
        """A greenlet's; without end."""
        while True:
            until = monotonic_ns() + BUILD_TIME
            while self._wanted and monotonic_ns() < until:
                self._wanted.popleft()()
            if self._wanted:
                yield_to_io()
            else:
                gevent.sleep(INTERVAL)
