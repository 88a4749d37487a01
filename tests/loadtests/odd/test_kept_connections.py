"""A kept connection that the server closes as the next request is written to it: sent once more, and recorded."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import pytest

from enginebench.records.metrics import BY_NAME
from loadtests.harness.client.client import Client
from tests.support.loadtests.asking import due
from tests.support.servers.odd import CONTINUE, Odd, OddServer, Request, answer
from tests.support.servers.wire_script import HEAD, Step, token

pytestmark = pytest.mark.alone
GOOD = answer(token(), token(), usage={"prompt_tokens": 7, "completion_tokens": 2})


def then(*steps: Step, once: bool = True) -> Odd:
    """The first request is answered, the second as given; if `once`, the others are answered, too."""

    def script(request: Request) -> Iterable[Step]:
        return GOOD if request.number == 1 or (once and request.number > 2) else steps

    return Odd(chat=script)


@pytest.mark.parametrize(
    ("case", "outcome", "resent", "requests", "connections"),
    [
        pytest.param(then("close"), "ok", True, 3, 2, id="closed"),
        pytest.param(then("reset"), "ok", True, 3, 2, id="reset"),
        pytest.param(then(0.05, "close"), "ok", True, 3, 2, id="closed a little later"),
        pytest.param(then("close", once=False), "disconnected", True, 3, 2, id="the new one is closed, too"),
        pytest.param(then(CONTINUE, "close"), "disconnected", False, 2, 1, id="closed after an interim answer"),
        pytest.param(then(b"HTTP/1.1 2", "close"), "disconnected", False, 2, 1, id="closed within the status line"),
        pytest.param(then(HEAD, "reset"), "disconnected", False, 2, 1, id="reset after the head"),
    ],
)
def test_the_second_request_of_a_connection(
    case: Odd, outcome: str, resent: bool, requests: int, connections: int
) -> None:
    with OddServer(case) as server:
        client = Client(server.url)
        assert client.request(due(time.monotonic_ns())).resent is False
        heard: list[Any] = []
        began = time.monotonic_ns()
        seen = client.request(due(began), heard.append)
        client.close()
        assert (len(server.asked), server.connections) == (requests, connections)
    assert heard == [seen], "it is one request"
    assert (seen.outcome, seen.resent, seen.t_connect is not None) == (outcome, resent, resent)
    if outcome == "ok":
        assert (seen.chunks, seen.output_tokens, seen.detail) == (2, 2, None)
        assert seen.t_connect is not None
        assert seen.t_send is not None
        assert began <= seen.t_connect < seen.t_send
        parts = [BY_NAME[name].read(seen) or 0.0 for name in ("send_lag", "connect", "ttft")]
        assert sum(parts) == pytest.approx(BY_NAME["ttft_user"].read(seen)), (
            "the lost attempt belongs to the connection"
        )
        assert parts[0] < parts[1]


def test_a_first_request_is_never_sent_twice() -> None:
    with OddServer(Odd(chat=["close"])) as server:
        client = Client(server.url)
        client.connect()
        seen = client.request(due())
        client.close()
        assert len(server.asked) == 1
    assert (seen.outcome, seen.resent) == ("disconnected", False)


def test_a_server_that_closes_every_second_time_fails_no_request() -> None:
    with OddServer(Odd(chat=lambda request: GOOD if request.turn == 1 else ["close"])) as server:
        client = Client(server.url)
        records = [client.request(due()) for _ in range(12)]
        client.close()
        assert server.connections == 12
    assert {record.outcome for record in records} == {"ok"}
    assert sum(record.resent for record in records) == 3, "then the client closes its connections itself"


def test_a_server_that_is_gone_is_a_failure() -> None:
    with OddServer(then("close")) as server:
        client = Client(server.url)
        client.request(due())
        server.stop_listening()
        seen = client.request(due())
        client.close()
    assert seen.outcome == "disconnected"
    assert "no connection to 127.0.0.1" in (seen.detail or "")
