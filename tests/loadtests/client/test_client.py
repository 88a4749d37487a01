"""Connections, limits and ends of requests."""

from __future__ import annotations

import gc
import json
import socket
import time

import gevent
import pytest

from enginebench.records.request import RequestRecord
from loadtests.harness.client.authentication import Access
from loadtests.harness.client.call import Call
from loadtests.harness.client.client import QUICK_CLOSES, Client
from loadtests.harness.client.exchange import Exchange
from tests.support.loadtests.asking import GOOD_END, ask, ask_scripted, due
from tests.support.servers.wire_script import (
    DONE,
    END,
    HEAD,
    HEAD_UNTIL_CLOSE,
    Step,
    WireServer,
    delta,
    frame,
    json_answer,
    token,
)

pytestmark = pytest.mark.alone


def tokens_every(seconds: float) -> list[Step]:
    return [step for _ in range(100) for step in (frame(token()), seconds)]


def test_one_connection_serves_many_requests() -> None:
    with WireServer([HEAD, frame(token()), GOOD_END]) as server:
        client = Client(f"{server.url}/proxy/v1/", access=Access({"authorization": "Bearer secret"}))
        client.connect()
        assert [client.request(due(0)).outcome for _ in range(5)] == ["ok"] * 5
        client.close()
    assert server.connections == 1
    head = server.requests[0].lower()
    assert head.startswith(b"post /proxy/v1/chat/completions http/1.1\r\n")
    assert b"authorization: bearer secret\r\n" in head
    assert b"accept-encoding: identity\r\n" in head


def test_the_round_trip_is_no_longer_than_opening_the_connection() -> None:
    with WireServer([HEAD, frame(token()), 0.2, GOOD_END]) as server:
        client = Client(server.url)
        began = time.monotonic()
        client.connect()
        opening = time.monotonic() - began
        record = client.request(due(0))
        client.close()
    assert record.round_trip is not None
    assert 0 < record.round_trip <= opening


@pytest.mark.parametrize(
    "first",
    [
        pytest.param([HEAD, frame(token()), GOOD_END, "close"], id="closed while idle"),
        pytest.param([HEAD, frame(token()), GOOD_END, "reset"], id="reset while idle"),
        pytest.param([HEAD_UNTIL_CLOSE, token(), DONE, "close"], id="the server said it would close"),
        pytest.param(
            [HEAD, frame(token()), GOOD_END, b"HTTP/1.1 408 Timeout\r\n\r\n"], id="bytes that nobody asked for"
        ),
    ],
)
def test_a_lost_idle_connection_is_opened_again_before_the_timed_region(first: list[Step]) -> None:
    with WireServer(first, [HEAD, frame(token()), GOOD_END]) as server:
        client = Client(server.url)
        client.connect()
        before = client.request(due(0))
        gevent.sleep(0.1)
        after = client.request(due(0))
        client.close()
    assert (before.outcome, before.t_connect) == ("ok", None)
    assert after.outcome == "ok"
    assert after.t_connect is not None
    assert after.t_send is not None
    assert after.t_connect < after.t_send, "opening a connection lies before the timed region"
    assert server.connections == 2


def test_a_server_that_closes_after_each_answer_without_saying_so_loses_no_further_request() -> None:
    """A request may be written just before the end of the connection arrives, until the client knows that it will."""
    with WireServer([HEAD, frame(token()), GOOD_END, 0.002, "close"]) as server:
        clients = [Client(server.url) for _ in range(2)]
        for _ in range(QUICK_CLOSES):
            clients[0].request(due(0))
            gevent.sleep(0.1)
        records = [client.request(due(0)) for _ in range(20) for client in clients]
        for client in clients:
            client.close()
    assert {record.outcome for record in records} == {"ok"}
    assert all(record.t_connect is not None for record in records)


@pytest.mark.parametrize(
    ("closed", "at_once"),
    [
        pytest.param(QUICK_CLOSES - 1, 1.0, id="a few that were closed at once"),
        pytest.param(QUICK_CLOSES + 1, 0.001, id="any number that was closed when idle for long"),
    ],
)
def test_connections_are_kept_though_a_server_has_closed_some(
    closed: int, at_once: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loadtests.harness.client.client.CLOSES_AT_ONCE", at_once * 1e9)
    good: list[Step] = [HEAD, frame(token()), GOOD_END]
    closes: list[Step] = [*good, 0.05, "close"]
    with WireServer(*[closes] * closed, good) as server:
        client = Client(server.url)
        for _ in range(closed):
            client.request(due(0))
            gevent.sleep(0.1)
        assert [client.request(due(0)).outcome for _ in range(5)] == ["ok"] * 5
        client.close()
    assert server.connections == closed + 1


def test_a_restart_and_a_new_run_keep_connections() -> None:
    good: list[Step] = [HEAD, frame(token()), GOOD_END]
    closes: list[Step] = [*good, 0.002, "close"]
    with WireServer(*[good, closes] * QUICK_CLOSES, *[closes] * QUICK_CLOSES, good) as server:
        client = Client(server.url)
        for _ in range(3 * QUICK_CLOSES):
            client.request(due(0))
            gevent.sleep(0.1)
        assert server.connections == 2 * QUICK_CLOSES, "a connection that had two answers is no sign"
        client.request(due(0))
        Client.forget_closing()
        assert [client.request(due(0)).outcome for _ in range(5)] == ["ok"] * 5
        client.close()
    assert server.connections == 2 * QUICK_CLOSES + 2


@pytest.mark.parametrize(
    ("thoughts", "words", "text"),
    [
        pytest.param(["hm ", "so"], ["Paris", "."], "Paris.", id="without the reasoning"),
        pytest.param(["hm ", "so"], [], "hm so", id="an answer that was cut off while it reasoned"),
        pytest.param([], [], "", id="nothing at all"),
    ],
)
def test_a_conversation_goes_on_with_what_was_said(thoughts: list[str], words: list[str], text: str) -> None:
    events = [delta(reasoning_content=thought) for thought in thoughts] + [token(word) for word in words]
    with WireServer([HEAD, *map(frame, events), GOOD_END]) as server:
        client = Client(server.url)
        assert client.request(due(0)).outcome == "ok"
        client.close()
    assert client.answer_text == text


def test_an_answer_ends_by_a_reset_and_soon_after_done_if_nothing_follows() -> None:
    """More of what ends an answer: test_streams.py."""
    unended = ask_scripted(HEAD, frame(token()), GOOD_END.removesuffix(END))
    assert (unended.outcome, unended.chunks) == ("ok", 1)
    seen = ask_scripted(HEAD, frame(token()), 0.05, "reset")
    assert (seen.outcome, seen.chunks) == ("disconnected", 1)
    assert "lost" in (seen.detail or "")


def test_a_request_has_a_limit() -> None:
    slow = ask_scripted(HEAD, *tokens_every(0.1), request_timeout=0.35)
    assert slow.outcome == "timeout"
    assert 2 <= slow.chunks <= 4
    assert "0.35 s" in (slow.detail or "")


def test_a_killed_request_is_cut_off_and_keeps_what_it_has_seen() -> None:
    with WireServer([HEAD, *tokens_every(0.05)]) as server:
        client = Client(server.url)
        heard: list[RequestRecord] = []
        user = gevent.spawn(client.request, due(0), heard.append)
        gevent.sleep(0.3)
        user.kill()
        assert isinstance(user.value, gevent.GreenletExit)
        client.close()
    (seen,) = heard
    assert seen.outcome == "cut_off"
    assert 2 <= seen.chunks <= 7
    assert seen.output_tokens is None
    assert (seen.text or "").split() == ["word"] * seen.chunks


def test_a_server_that_is_not_there_is_an_outcome_not_an_exception() -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    client = Client(f"http://127.0.0.1:{port}")
    heard: list[RequestRecord] = []
    seen = client.request(due(5), heard.append)
    assert heard == [seen]
    assert (seen.outcome, seen.t_sched, seen.t_send, seen.status) == ("disconnected", 5, None, None)
    assert f"no connection to 127.0.0.1:{port}" in (seen.detail or "")
    with pytest.raises(OSError, match="no connection to"):
        client.connect()


def test_a_long_prompt_is_written_while_the_answer_may_already_come() -> None:
    body = json.dumps({"prompt": "x" * 8_000_000}).encode()
    call = Call("/v1/chat/completions", body, True)
    with WireServer([HEAD, frame(token()), GOOD_END]) as server:
        assert ask(server, call).outcome == "ok"
    assert server.requests[0].endswith(body)
    refusal = json_answer("413 Payload Too Large", {"error": {"message": "at most 1 MB"}})
    with WireServer([refusal, 0.3, "close"]) as server:
        seen = ask(server, call, access=Access({"X-Hold-Body": "1"}), request_timeout=5)
    assert (seen.outcome, seen.status, seen.detail) == ("http_error", 413, "at most 1 MB")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        pytest.param("127.0.0.1:8000", "give one such as http://", id="no scheme"),
        pytest.param("ftp://x", "is not a server's address", id="another protocol"),
        pytest.param("http://x:0", "from 1 to 65535", id="port 0"),
        pytest.param("http://[::1:8000", "is not a server's address", id="half a pair of brackets"),
        pytest.param("http://me:word@[::1", "would appear in reports", id="the same with a password"),
        pytest.param("http://x/y#part", "has a part after #", id="a fragment"),
        pytest.param("http://x:99999", "not a number from 1 to 65535", id="a port too high"),
    ],
)
def test_what_cannot_work_is_refused_at_once(url: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Client(url)


def exchanges() -> int:
    return sum(type(thing) is Exchange for thing in gc.get_objects())


def test_nothing_of_a_request_is_kept() -> None:
    with WireServer([HEAD, *[frame(token())] * 200, GOOD_END]) as server:
        client = Client(server.url)
        gc.collect()
        gc.disable()
        before = exchanges()
        try:
            for _ in range(20):
                client.request(due(0))
            kept = exchanges() - before
        finally:
            gc.enable()
        client.close()
    assert kept <= 1
