"""A pool of open connections for an open loop, each with a greenlet that sends requests.

An arrival must not wait for a connection to be opened. So spare connections are opened in the background, and checked
while they are idle, because servers close idle connections. Connections that were opened during a stall of the server
are closed after it.
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

KEEP = 0.02  # seconds between two checks of the number of spare connections
CHECKED = 16  # maximum of idle connections that are checked, and perhaps closed, each time
Send = Callable[[Client], None]


class Sender:
    """A connection and its greenlet. `waiter` takes a function that sends a request and waits for its answer."""

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
    """Keep `spare` connections open in addition to those in use; at most `limit` requests are in flight."""

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
        """Return whether all spare connections are open."""
        return len(self.idle) >= min(self.spare, self._limit - self.in_flight)

    def send(self, send: Send) -> bool:
        """Send now; return `False` if the limit on requests in flight is reached. Call this in the hub."""
        if self.in_flight >= self._limit:
            return False
        self.in_flight += 1
        if self.idle:
            self.idle.pop().waiter.switch(send)  # the connection used last is the least likely to be closed
        else:
            self._senders.add(Sender(self, send))  # opens a connection; its record says so
        return True

    def close(self) -> None:
        """Cut off the requests in flight, and return when each has been recorded."""
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
