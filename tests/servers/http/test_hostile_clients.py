"""Clients that send what no client should: each case is a row of `CLIENTS`, spoken over a bare socket."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psutil
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from servers.http import connection as connections
from servers.http.api_errors import OUTCOMES
from servers.http.connection import MAX_HEAD, MAX_PIPELINED, Connection
from tests.support.servers.served import CHAT, RunningServer, body, served, until
from validation.processes import http_request

MIB = 1024 * 1024
PATIENCE = 64 * MIB  # bytes that a client sends before it gives up
GET = b"GET /health HTTP/1.1\r\nHost: x\r\n"
POST = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n".encode()
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
LARGE = "A request's head, chunk extensions and trailers are limited to 65536 bytes."
INVALID = "Invalid HTTP request received."


@dataclass(frozen=True)
class Client:
    """Sends `begins`, then `repeats` until the server answers or closes. `status` is none if it only closes."""

    begins: bytes
    repeats: bytes
    status: int | None = 431
    message: str | None = LARGE


def asked(**fields: object) -> bytes:
    content = json.dumps(body(**fields)).encode()  # type: ignore[arg-type]
    return http_request(CHAT, content, keep_alive=True)


CLIENTS = {
    "an endless header": Client(GET + b"X-Endless: ", b"a" * 16_384),
    "an endless header, a byte at a time": Client(GET + b"X-Endless: " + b"a" * 65_000, b"a"),
    "an endless name of a header": Client(GET + b"X", b"a" * 16_384),
    "an endless path": Client(b"GET /", b"a" * 16_384),
    "an endless query": Client(b"GET /health?", b"a" * 16_384),
    "endless small headers": Client(GET, b"a:b\r\n" * 1000),
    "endless empty headers": Client(GET, b"a:\r\n" * 1000),
    "endless spaces before a value": Client(GET + b"X:", b" " * 16_384),
    "endless empty lines before the head": Client(b"", b"\r\n" * 8192),
    "endless cookies after the key": Client(GET + b"Authorization: Bearer x\r\nCookie: ", b"a=b; " * 2000),
    "a whole head that is too large": Client(GET + b"X: " + b"a" * (MAX_HEAD + 1) + b"\r\n\r\n", b""),
    "a whole head of too many headers": Client(GET + b"a: b\r\n" * 40_000 + b"\r\n", b""),
    "a head that is too large behind a request": Client(GET + b"\r\n" + GET + b"X: ", b"a" * 16_384, None, None),
    "an endless chunk extension": Client(CHUNKED + b"5;", b"a" * 16_384),
    "an endless value of a chunk extension": Client(CHUNKED + b"5;a=", b"a" * 16_384),
    "an endless size of a chunk": Client(CHUNKED, b"0" * 16_384),
    "an endless trailer": Client(CHUNKED + b"2\r\n{}\r\n0\r\nX: ", b"a" * 16_384),
    "endless small trailers": Client(CHUNKED + b"2\r\n{}\r\n0\r\n", b"a:b\r\n" * 1000),
    "endless extensions of small chunks": Client(CHUNKED, b"1;" + b"a" * 200 + b"\r\n \r\n"),
    "a body in endless chunks of a byte": Client(CHUNKED, b"1\r\n \r\n" * 1000),
    "an endless method": Client(b"", b"A" * 16_384, 400, INVALID),
    "a TLS handshake": Client(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500), b"", 400, INVALID),
    "two lengths": Client(POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n", b"", 400, INVALID),
    "a length and chunks": Client(POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", b"", 400, INVALID),
    "a negative length": Client(POST + b"Content-Length: -5\r\n\r\n", b"", 400, INVALID),
    "a header without a name": Client(GET + b": x\r\n\r\n", b"", 400, INVALID),
    "a null byte in a header": Client(GET + b"X: a\0b\r\n\r\n", b"", 400, INVALID),
    "a tunnel": Client(
        b"CONNECT example.com:80 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"",
        400,
        "This server is no proxy: CONNECT is not supported.",
    ),
    "a path that is no path": Client(b"GET http:// HTTP/1.1\r\nHost: x\r\n\r\n", b"", 400, INVALID),
    "rubbish behind a request that is answered": Client(
        asked(tokens=60, stream=True), b"\0rubbish\r\n\r\n", None, None
    ),
    "too many pipelined requests": Client(asked(tokens=200), (GET + b"\r\n") * (MAX_PIPELINED + 2), None, None),
}


@contextmanager
def without_traceback(*options: str) -> Iterator[RunningServer]:
    with served(*options, arguments=("--warm-up-tokens=0",)) as running:
        yield running
        assert running.stop() == 0
        assert running.process.stderr is not None
        assert "Traceback" not in running.process.stderr.read()


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with without_traceback("tpot=0.05") as running:
        yield running


@pytest.fixture(scope="module")
def silent() -> Iterator[RunningServer]:
    """Its first token would come after a minute."""
    with without_traceback("ttft=60") as running:
        yield running


def answer_to(client: Client, connection: socket.socket) -> tuple[bytes, int]:
    """All that the server sends until it closes, and the bytes that were sent to it."""
    sent, heard = 0, bytearray()
    with suppress(ConnectionError):
        connection.sendall(client.begins)
        connection.setblocking(False)
        while client.repeats and sent < PATIENCE:
            with suppress(BlockingIOError):
                sent += connection.send(client.repeats)
            with suppress(BlockingIOError):
                if not (more := connection.recv(65536)):
                    return bytes(heard), sent
                heard += more
    connection.settimeout(20)
    with suppress(ConnectionError):
        while more := connection.recv(65536):
            heard += more
    return bytes(heard), sent


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_a_hostile_client_is_refused_and_costs_little(client: Client, server: RunningServer) -> None:
    process = psutil.Process(server.process.pid)
    before = process.memory_info().rss
    with server.connect() as connection:
        heard, sent = answer_to(client, connection)
    assert sent < PATIENCE, "the connection was closed"
    assert process.memory_info().rss - before < 20 * MIB
    if client.status is not None:
        assert heard.startswith(b"HTTP/1.1 %d " % client.status), heard[:100]
    if client.message is not None:
        head, _, content = heard.partition(b"\r\n\r\n")
        assert b"content-type: application/json\r\n" in head
        assert b"connection: close" in head
        assert json.loads(content)["error"]["message"] == client.message
    assert server.client.get("/health").status_code == 200


def test_a_head_of_60_kb_is_served(server: RunningServer) -> None:
    assert server.client.get("/health", headers={"X-Long": "a" * 60_000}).status_code == 200
    assert server.client.get(f"/health?{'a' * 60_000}").status_code == 200


def test_trailers_and_chunk_extensions_are_ignored(server: RunningServer) -> None:
    content = json.dumps(body(2)).encode()
    with server.connect() as connection:
        connection.sendall(CHUNKED + b'%x;a="b"\r\n%s\r\n0\r\n' % (len(content), content))
        connection.sendall(b"Content-Type: text/plain\r\nConnection: close\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("behind", "stream"),
    [
        pytest.param(b"", True, id="a stream alone"),
        pytest.param(asked(stream=True), True, id="two streams"),
        pytest.param(asked(stream=True) * 5, False, id="streams behind an answer in one piece"),
        pytest.param(GET + b"\r\n", True, id="another path"),
        pytest.param(asked(stream=True)[:-5], True, id="half a request"),
        pytest.param(GET, True, id="half a head"),
        pytest.param(asked(messages=[{"role": "user", "content": "x" * 200_000}]), True, id="a large body"),
    ],
)
@pytest.mark.parametrize("name", ["silent", "server"])
def test_a_client_that_pipelines_and_leaves_is_cancelled(
    name: str, behind: bytes, stream: bool, request: pytest.FixtureRequest
) -> None:
    """What waits behind its first request never begins, and is not counted."""
    running: RunningServer = request.getfixturevalue(name)

    def counts() -> dict[str, float]:
        found = {outcome: running.metric("requests_total", endpoint="chat", outcome=outcome) for outcome in OUTCOMES}
        return {outcome: count for outcome, count in found.items() if count}

    before = counts()
    with running.connect() as connection:
        connection.sendall(asked(tokens=100_000, stream=stream) + behind)
        until(lambda: running.metric("requests_running") == 1, "it runs")
    until(lambda: counts().get("cancelled", 0) > before.get("cancelled", 0), "it is counted")
    assert counts() == before | {"cancelled": before.get("cancelled", 0) + 1}
    until(lambda: running.metric("requests_running") == 0, "its slot is free")


@pytest.mark.parametrize(
    "begun", [b"G", GET, GET + b"X: ", b"\r\n", CHUNKED, CHUNKED + b"5\r\nab", GET + b"\r\n" + CHUNKED + b"5\r\nab"]
)
def test_a_request_that_does_not_arrive_is_refused(begun: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "TIMEOUT", 0.05)

    async def reads(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "GET":
            await send({"type": "http.response.start", "status": 204})
            await send({"type": "http.response.body"})
            return
        while (await receive())["type"] != "http.disconnect":
            pass

    async def main() -> bytes:
        config = uvicorn.Config(reads, lifespan="off")
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Connection(config, ServerState(), {}), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(begun)
        heard = await asyncio.wait_for(reader.read(), 20)
        writer.close()
        server.close()
        return heard

    heard = asyncio.run(main())
    assert heard.count(b"HTTP/1.1 408 ") == 1
    assert json.loads(heard.rpartition(b"\r\n\r\n")[2])["error"]["message"] == "A request must arrive within 60 s."
