"""Work in slices, between which the event loop polls its sockets and timers."""

import gevent

TURN = 0.001  # seconds; epoll waits for whole milliseconds


def yield_to_io() -> None:
    """Let the event loop poll. After `gevent.sleep(0)`, greenlets take turns for up to 5 ms (`sys.getswitchinterval`)
    before the loop polls again, and a request that is due meanwhile is sent late."""
    gevent.sleep(TURN)
