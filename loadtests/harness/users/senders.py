"""A pool of open connections for an open loop, each with a greenlet that sends the requests it is given.

An arrival must not wait for a connection to be opened. So spare ones are opened ahead, in the background, and checked
while they are idle, because servers close idle connections. Those that a stall of the server took are closed after it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress

import gevent
from gevent import get_hub
from gevent.hub import Waiter

from loadtests.harness.client.client import Client
from loadtests.harness.event_loop import yield_to_io

KEEP = 0.02  # seconds between two checks of how many are spare
CHECKED = 16  # idle connections that are checked each time, and closed at most
Send = Callable[[Client], None]


class Sender:
    """A connection and its greenlet. `waiter` takes what to send; it returns when the answer has ended."""

    def __init__(self, pool: SenderPool, first: Send | None = None) -> None:
        self._pool = pool
        self.client = pool.new_client()
        self.waiter: Waiter[Send] = Waiter(get_hub())
        self.greenlet = gevent.spawn(self._run, first)

    def _run(self, send: Send | None) -> None:
        try:
            if send is None:
                with suppress(OSError):  # the first request fails with the same reason, and is recorded
                    self.client.connect()
            while True:
                if send is not None:
                    send(self.client)
                    self._pool.in_flight -= 1
                self._pool.idle.append(self)
                send = self.waiter.get()
        finally:
            self.client.close()


class SenderPool:
    """Keeps `spare` connections open in addition to those in use; `limit` is the most requests in flight."""

    def __init__(self, new_client: Callable[[], Client], limit: int) -> None:
        self.new_client = new_client
        self.idle: deque[Sender] = deque()
        self.in_flight = 0
        self.spare = 1
        self._limit = limit
        self._senders: set[Sender] = set()
        self._keeper = gevent.spawn(self._keep)

    @property
    def complete(self) -> bool:
        """Whether the spare connections are all open."""
        return len(self.idle) >= min(self.spare, self._limit - self.in_flight)

    def send(self, send: Send) -> bool:
        """Send it now; `False` where the limit on requests in flight is reached. Called by the hub."""
        if self.in_flight >= self._limit:
            return False
        self.in_flight += 1
        if self.idle:
            self.idle.pop().waiter.switch(send)  # the connection used last is the least likely to be closed
        else:
            self._senders.add(Sender(self, send))  # opens a connection; its record says so
        return True

    def close(self) -> None:
        """Cut off what is in flight; returns when each request has been recorded."""
        gevent.kill(self._keeper)
        gevent.killall([sender.greenlet for sender in self._senders])

    def _keep(self) -> None:
        while True:
            total = len(self._senders)
            for _ in range(min(self.spare + self.in_flight, self._limit) - total):
                self._senders.add(Sender(self))
                yield_to_io()
            for _ in range(min(len(self.idle) - 2 * self.spare - self.in_flight, CHECKED)):
                unused = self.idle.popleft()
                self._senders.remove(unused)
                unused.greenlet.kill(block=False)
            for _ in range(min(CHECKED, len(self.idle))):
                sender = self.idle.popleft()
                try:
                    with suppress(OSError):
                        sender.client.connect()
                finally:
                    self.idle.append(sender)
            gevent.sleep(KEEP)
