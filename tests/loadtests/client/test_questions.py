"""Questions to a server end in time, whatever it sends, and take little memory."""

from __future__ import annotations

import re
import time

import pytest

from loadtests.harness.client import questions
from loadtests.harness.client.authentication import Access
from loadtests.harness.client.questions import NoAnswer, NoConnection, Questions
from loadtests.harness.client.server_address import Address
from tests.support.servers import odd
from tests.support.servers.odd import Odd, OddServer, Script
from tests.support.servers.wire_script import json_answer

DEADLINE = 0.4
LATE = f"no answer within {DEADLINE:g} s"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "DEADLINE", DEADLINE)


TOO_LONG = "its answer is longer than 4 MB"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        pytest.param(odd.hangs, LATE, id="nothing"),
        pytest.param(odd.trickles(b"HTTP/1.1 200 OK\r\nX: " + b"a" * 1000, 0.05), LATE, id="a trickle of a head"),
        pytest.param(odd.trickles(odd.JSON_HEAD + b"1\r\n{\r\n" * 99, 0.01), LATE, id="a trickle of a body"),
        pytest.param(odd.endless_continue, LATE, id="100 Continue for ever"),
        pytest.param(odd.endless_continue_at_once, LATE, id="100 Continue as fast as it goes"),
        pytest.param(odd.closes, "Server disconnected without sending a response", id="the end of the connection"),
        pytest.param(odd.resets, None, id="a reset"),
        pytest.param([b"SSH-2.0-OpenSSH_9.2\r\n"], None, id="another protocol"),
        pytest.param(odd.endless_header, None, id="an endless header"),
        pytest.param(odd.endless_headers, None, id="endless headers"),
        pytest.param(odd.endless_chunk_size, None, id="an endless size of a chunk"),
        pytest.param(odd.endless_json, TOO_LONG, id="an endless list"),
        pytest.param(odd.gzip_bomb, "its answer is compressed (gzip)", id="gzip"),
        pytest.param([odd.JSON_HEAD, b"5\r\n{\r\n", "close"], None, id="half an answer"),
    ],
)
def test_a_question_ends(script: Script, reason: str | None) -> None:
    with OddServer(Odd(routes={"/v1/models": script})) as server:
        asked = Questions(Address.parse(server.url), Access())
        began = time.monotonic()
        with pytest.raises(NoAnswer, match=re.escape(reason) if reason else None):
            asked.json("GET", "/v1/models")
        assert time.monotonic() - began < 4
        asked.close()


def test_a_server_that_cannot_be_reached_was_not_asked() -> None:
    with pytest.raises(NoConnection, match="Connection refused"):
        Questions(Address.parse("http://127.0.0.1:9"), Access()).json("GET", "/v1/models")


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(json_answer("200 OK", [1]), id="a list"),
        pytest.param(json_answer("404 Not Found", {"data": 1}), id="an error"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n\xff", id="no text"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 20000\r\n\r\n" + b"[" * 20000, id="deep JSON"),
        pytest.param(b"HTTP/1.1 308 Moved\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n", id="a redirect"),
    ],
)
def test_an_odd_answer_is_none(answer: bytes) -> None:
    with OddServer(Odd(routes={"/v1/engine": [answer]})) as server:
        assert Questions(Address.parse(server.url), Access()).json("GET", "/v1/engine") == {}
        assert len(server.asked) == 1
