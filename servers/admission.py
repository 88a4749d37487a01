"""Who may use the engine now, and who waits: first come, first served, and no more waiting than was agreed.

A slot belongs to a request from its admission until the engine has really stopped working on it, which may be later
than the moment the client left. Everything runs on one event loop, so there are no locks.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable

RETRY_AFTER_MOST = 120  # seconds: nobody plans further ahead on an estimate
SMOOTHING = 0.1  # weight of the newest request in the mean service time


class QueueFull(Exception):
    """`retry_after` is an estimate in whole seconds, at least 1."""

    def __init__(self, waiting: int, retry_after: int) -> None:
        super().__init__(f"{waiting} requests are waiting already; try again in about {retry_after} s.")
        self.retry_after = retry_after


class Slot:
    """The right to run one request. `release` it once, when the engine has stopped; again does no harm."""

    __slots__ = ("_admission", "_since")

    def __init__(self, admission: Admission, since: float) -> None:
        self._admission: Admission | None = admission
        self._since = since

    def release(self) -> None:
        admission, self._admission = self._admission, None
        if admission is not None:
            admission._freed(self._since)


class Admission:
    """`capacity` requests run, at most `queue_size` wait."""

    def __init__(self, capacity: int, queue_size: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.capacity = capacity
        self.queue_size = queue_size
        self.running = 0
        self._clock = clock
        self._line: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self._service_time: float | None = None  # smoothed seconds that a request holds its slot

    @property
    def waiting(self) -> int:
        return len(self._line)

    async def enter(self) -> Slot:
        """Wait for a slot. Raises `QueueFull` at once where the line is too long; leaving early costs nothing."""
        if self.running < self.capacity and not self._line:
            self.running += 1
            return Slot(self, self._clock())
        if len(self._line) >= self.queue_size:
            raise QueueFull(len(self._line), self.retry_after())
        turn = asyncio.get_running_loop().create_future()
        self._line[turn] = None
        try:
            await turn
        except BaseException:
            if turn.cancelled():
                self._line.pop(turn, None)
            else:  # the slot was given in the very moment the request gave up
                self._pass_on()
            raise
        return Slot(self, self._clock())

    def resize(self, capacity: int) -> None:
        """Let in those that a larger capacity has room for. A smaller one takes effect as slots come back."""
        self.capacity = capacity
        while self.running < self.capacity and self._line:
            self.running += 1
            self._pass_on()

    def retry_after(self) -> int:
        """Seconds until a newcomer would be admitted, if things go on as they did."""
        if self._service_time is None:
            return 1
        ahead = (self.waiting + 1) / max(1, self.capacity) * self._service_time
        return min(RETRY_AFTER_MOST, max(1, math.ceil(ahead)))

    def _freed(self, since: float) -> None:
        held = self._clock() - since
        known = self._service_time
        self._service_time = held if known is None else known + SMOOTHING * (held - known)
        self._pass_on()

    def _pass_on(self) -> None:
        """Give one slot to the first in line, or take it out of use."""
        while self._line and self.running <= self.capacity:
            turn, _ = self._line.popitem(last=False)
            if not turn.done():
                turn.set_result(None)
                return
        self.running -= 1
