"""Connections of an open loop: as many as are needed, with some to spare."""

from __future__ import annotations

from collections.abc import Callable

import gevent
from gevent import get_hub
from gevent.event import Event

from loadtests.harness.client.client import Client
from loadtests.harness.users.senders import Send, SenderPool
from tests.support.servers.wire_script import HEAD, WireServer

LIMIT = 10.0  # seconds


def wait_until(condition: Callable[[], bool]) -> None:
    with gevent.Timeout(LIMIT):
        while not condition():
            gevent.sleep(0.01)


def test_connections_that_a_stall_took_are_closed_after_it() -> None:
    stalled, sent = Event(), 0

    def during_the_stall(client: Client) -> None:
        nonlocal sent
        stalled.wait()
        sent += 1

    def send(what: Send) -> None:
        get_hub().loop.run_callback(pool.send, what)

    with WireServer([HEAD]) as server:
        pool = SenderPool(lambda: Client(server.url), limit=100)
        pool.spare = 2
        for _ in range(30):
            send(during_the_stall)
        wait_until(lambda: pool.in_flight == 30 and pool.complete)
        stalled.set()
        wait_until(lambda: pool.in_flight == 0 and len(pool.idle) <= 2 * pool.spare)
        assert sent == 30
        assert pool.complete, "some are kept for what comes next"
        send(during_the_stall)
        wait_until(lambda: sent == 31)
        pool.close()
