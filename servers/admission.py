"""Admission control: a bounded number of slots and a bounded first-come, first-served queue.

A request holds its slot from admission until the engine has actually stopped working on it, which may be later than
the client's disconnect. A request is refused before its prompt is prepared, so that a refusal costs nothing.
Everything runs on one event loop, so there are no locks.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

RETRY_AFTER_MOST = 120  # seconds; a longer estimate would be too uncertain
SMOOTHING = 0.1  # weight of the newest request in the mean service time


class QueueFull(Exception):
    """`retry_after` is an estimate in whole seconds, at least 1."""

    def __init__(self, waiting: int, retry_after: int) -> None:
        super().__init__(f"The queue is full ({waiting} waiting); try again in about {retry_after} s.")
        self.retry_after = retry_after


class Slot:
    """The right to run one request. `release` it when the engine has stopped; further calls do nothing."""

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
        self._preparing = 0  # requests whose prompts are being read and tokenised
        self._queue: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self._service_time: float | None = None  # smoothed seconds that a request holds its slot

    @property
    def waiting(self) -> int:
        return self._preparing + len(self._queue)

    def refuse_if_full(self) -> None:
        """Raise `QueueFull` if no more requests may wait."""
        if self.waiting >= self.queue_size + max(0, self.capacity - self.running):
            raise QueueFull(self.waiting, self.retry_after())

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Count a request as waiting within the block: no more are prepared than may wait. Raises `QueueFull`."""
        self.refuse_if_full()
        self._preparing += 1
        try:
            yield
        finally:
            self._preparing -= 1

    async def enter(self) -> Slot:
        """Wait for a slot. Raises `QueueFull` at once if the queue is full. May be cancelled."""
        if self.running < self.capacity and not self._queue:
            self.running += 1
            return Slot(self, self._clock())
        self.refuse_if_full()
        granted = asyncio.get_running_loop().create_future()
        self._queue[granted] = None
        try:
            await granted
        except BaseException:
            if granted.cancelled():
                self._queue.pop(granted, None)
            else:  # the slot was granted at the moment the request was cancelled
                self._pass_on()
            raise
        return Slot(self, self._clock())

    def resize(self, capacity: int) -> None:
        """Admit requests to the slots of a larger capacity. A smaller one takes effect as slots are released."""
        self.capacity = capacity
        while self.running < self.capacity and self._queue:
            self.running += 1
            self._pass_on()

    def retry_after(self) -> int:
        """Estimate the seconds until a new request would be admitted: requests ahead × mean service time ÷ slots."""
        if self._service_time is None:
            return 1
        ahead = (self.waiting + 1) / max(1, self.capacity) * self._service_time
        return min(RETRY_AFTER_MOST, max(1, math.ceil(ahead)))

    def _freed(self, since: float) -> None:
        held = self._clock() - since
        estimate = self._service_time
        self._service_time = held if estimate is None else estimate + SMOOTHING * (held - estimate)
        self._pass_on()

    def _pass_on(self) -> None:
        """Give a released slot to the first request in the queue, or take it out of use."""
        while self._queue and self.running <= self.capacity:
            granted, _ = self._queue.popitem(last=False)
            if not granted.done():
                granted.set_result(None)
                return
        self.running -= 1
