"""Stamps against the server's own clock, which says when it wrote what."""

from __future__ import annotations

import sys
import time

import gevent
import pytest

from loadtests.harness.client.client import Client
from loadtests.harness.client.clock import WallOffset
from tests.support.loadtests.asking import GOOD_END, ask, ask_scripted, due
from tests.support.servers.wire_script import DONE, END, HEAD, Step, WireServer, delta, finish, frame, token, usage

pytestmark = pytest.mark.alone

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux stamps what it receives")


@on_linux
def test_stamps_are_those_of_the_servers_own_writes() -> None:
    script: list[Step] = [HEAD + frame(delta(role="assistant")), 0.1, frame(delta(reasoning="hm")), 0.1]
    script += [frame(token()), 0.1, frame(token()), 0.1, GOOD_END]
    with WireServer(script) as server:
        seen = ask(server)
        server.finish_writing()
        writes, received = server.writes[0], server.received[0]
    assert seen.stamps == "kernel"
    assert not seen.merged_first
    assert seen.t_send is not None
    assert seen.t_send < received
    for stamp, write in zip(
        [seen.t_headers, seen.t_first, seen.t_first_out, seen.t_last, seen.t_end], writes, strict=True
    ):
        assert stamp is not None
        assert write.before - 0.0001e9 < stamp < write.after + 0.05e9  # 0.1 s would be the next write's
    assert seen.t_first is not None
    assert seen.read_first is not None
    assert seen.read_first > seen.t_first
    assert sum(seen.icl) == (seen.t_last or 0) - seen.t_first


@on_linux
def test_a_busy_client_shows_as_client_lag_and_not_in_the_stamps() -> None:
    with WireServer([HEAD, 0.05, frame(token()), 0.3, GOOD_END]) as server:

        def hog() -> None:  # blocks the event loop until the token has been written, and 50 ms more
            while not server.writes or len(server.writes[0]) < 2:
                time.sleep(0.001)
            time.sleep(0.05)

        client = Client(server.url)
        client.connect()
        hogging = gevent.spawn(hog)
        seen = client.request(due(0))
        hogging.join()
        client.close()
        write = server.writes[0][1]
    assert seen.t_first is not None
    assert seen.read_first is not None
    assert seen.t_first < write.after + 0.01e9
    assert seen.read_first > write.after + 0.045e9


def test_a_wall_clock_that_is_set_during_a_request_leaves_user_stamps(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = WallOffset.read
    steps = iter([0, 3_600_000_000_000])

    def read() -> WallOffset:
        now, step = honest(), next(steps)
        return WallOffset(now.low + step, now.high + step)

    monkeypatch.setattr(WallOffset, "read", read)
    seen = ask_scripted(HEAD, 0.02, frame(token()), 0.02, GOOD_END)
    assert (seen.outcome, seen.stamps) == ("ok", "user")
    assert seen.t_first == seen.read_first


def test_a_user_is_free_when_the_message_ends_not_at_done() -> None:
    """A body that goes on for 0.4 s after [DONE] is the server's doing, and no lateness of the load generator."""
    slow_end: list[Step] = [HEAD, frame(token()), frame(token()), frame(finish(usage=usage(2))), frame(DONE), 0.4, END]
    with WireServer(slow_end) as server:
        client = Client(server.url)
        seen = client.request(due(0))
        client.close()
    assert seen.outcome == "ok"
    assert client.free_at - seen.t_end == pytest.approx(0.4e9, abs=0.1e9)
