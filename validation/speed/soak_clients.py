"""The clients of `server_soak.py`: good, bad, slow and disconnecting. Each reports how its requests ended.

The server must have counted the outcome that the client saw. Only if a client disconnected just as its request ended
for another reason, the server may have counted either outcome.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

PATIENCE = 60.0  # seconds after which a client reports that the server is stuck
LONG = 2_000  # tokens of an answer that is never read to the end
PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}
OUTCOME_OF_STATUS = {429: "rejected", 500: "engine_error", 503: "unavailable", 504: "timeout"}
OUTCOME_OF_ERROR = {
    "timeout_error": "timeout",
    "server_error": "engine_error",
    "service_unavailable_error": "unavailable",
}
_ERROR = re.compile(rb'"error":\{.*?"type":"(\w+)"')


@dataclass(frozen=True, slots=True)
class Report:
    """A request, from `began` to `ended` (seconds, monotonic), as its client saw it."""

    endpoint: str
    outcome: str  # as the server is expected to call it
    began: float
    ended: float
    seen: bool  # the client saw the end; otherwise the engine may have ended it first


class Connection:
    """A connection with its requests, one after another, and their responses."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.received = b""

    def send(self, body: bytes, path: str, kind: str = "application/json", length: int | None = None) -> None:
        size = len(body) if length is None else length
        head = f"POST {path} HTTP/1.1\r\nHost: soak\r\nContent-Type: {kind}\r\nContent-Length: {size}\r\n\r\n"
        self.received = b""
        self.writer.write(head.encode() + body)

    async def receive(self) -> bool:
        """Read the next data; return false at the end of the connection."""
        with contextlib.suppress(ConnectionError):
            if data := await self.reader.read(65_536):
                self.received += data
                return True
        return False

    async def receive_tokens(self, least: int) -> bool:
        """Wait for at least `least` tokens; return false if the answer ends before."""
        while self.received.count(b'"finish_reason":null') < least:
            if self.complete or not await self.receive():
                return False
        return True

    async def receive_all(self) -> None:
        while not self.complete and await self.receive():
            pass

    @property
    def complete(self) -> bool:
        """Return whether the answer is complete."""
        head, separator, content = self.received.partition(b"\r\n\r\n")
        if not separator:
            return False
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        return content.endswith(b"0\r\n\r\n") if length is None else len(content) >= int(length[1])

    def outcome(self) -> tuple[str, bool]:
        """Return the outcome that the server must have counted, and whether the client saw the end."""
        if not self.complete:
            return "cancelled", False
        status = int(self.received.split(b" ", 2)[1])
        if status != 200:
            return OUTCOME_OF_STATUS.get(status, "bad_request"), True
        if error := _ERROR.search(self.received):
            return OUTCOME_OF_ERROR[error[1].decode()], True
        return "ok", True


@dataclass(frozen=True, slots=True)
class Visit:
    """The inputs of a client: the port, its own random numbers, and where to send its report."""

    port: int
    chance: random.Random
    reported: Callable[[Report], None]

    @asynccontextmanager
    async def connect(self, receive_buffer: int | None = None) -> AsyncIterator[Connection]:
        sock = socket.socket()
        sock.setblocking(False)
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.port))
        reader, writer = await asyncio.open_connection(sock=sock, limit=4_096)
        try:
            yield Connection(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    def endpoint(self) -> str:
        return self.chance.choice(tuple(PATHS))

    def body(self, endpoint: str, tokens: int | None = None, **fields: Any) -> bytes:
        words = " ".join(self.chance.choices(("red", "green", "blue", "cyan"), k=8))
        question = {"messages": [{"role": "user", "content": words}]} if endpoint == "chat" else {"prompt": words}
        sampling = {"max_tokens": tokens or self.chance.randint(1, 15), "temperature": 0}
        return json.dumps(question | sampling | fields).encode()

    @asynccontextmanager
    async def report(self, endpoint: str, connection: Connection) -> AsyncIterator[None]:
        """Report one request; the bytes received at the end decide its outcome."""
        began = time.monotonic()
        async with asyncio.timeout(PATIENCE):
            yield
        outcome, seen = connection.outcome()
        self.reported(Report(endpoint, outcome, began, time.monotonic(), seen))


Client = Callable[[Visit], Coroutine[Any, Any, None]]


async def reads_a_stream(visit: Visit) -> None:
    endpoint = visit.endpoint()
    async with visit.connect() as line, visit.report(endpoint, line):
        line.send(visit.body(endpoint, stream=True), PATHS[endpoint])
        await line.receive_all()


async def sends_three_requests(visit: Visit) -> None:
    """Send requests one after another over one connection, not streamed."""
    async with visit.connect() as line:
        for _ in range(3):
            endpoint = visit.endpoint()
            async with visit.report(endpoint, line):
                line.send(visit.body(endpoint, visit.chance.randint(1, 4)), PATHS[endpoint])
                await line.receive_all()


async def sends_invalid_requests(visit: Visit) -> None:
    endpoint = visit.endpoint()
    good = visit.body(endpoint)
    body, kind = visit.chance.choice(
        [
            (b"{", "application/json"),
            (b"\xff\xfe", "application/json"),
            (good, "text/plain"),
            (visit.body(endpoint, temperature="hot"), "application/json"),
            (visit.body(endpoint, model="gpt-4"), "application/json"),
            (visit.body(endpoint, 200_000), "application/json"),
            (visit.body(endpoint, nonsense=1), "application/json"),
            (visit.body(endpoint, user="x" * 300_000), "application/json"),
        ]
    )
    async with visit.connect() as line, visit.report(endpoint, line):
        line.send(body, PATHS[endpoint], kind)
        await line.receive_all()


async def reads_slowly(visit: Visit) -> None:
    async with visit.connect(receive_buffer=4_096) as line, visit.report("completions", line):
        prompt = visit.chance.randbytes(20_000).hex()
        line.send(visit.body("completions", stream=True, echo=True, prompt=prompt), PATHS["completions"])
        while not line.complete and await line.receive():
            await asyncio.sleep(0.1)


async def stops_reading(visit: Visit) -> None:
    """Stop reading a large answer, and disconnect."""
    async with visit.connect(receive_buffer=4_096) as line, visit.report("completions", line):
        prompt = visit.chance.randbytes(60_000).hex()
        line.send(visit.body("completions", LONG, stream=True, echo=True, prompt=prompt), PATHS["completions"])
        await line.receive()
        if not line.complete:
            await asyncio.sleep(4)
            line.writer.transport.abort()


async def disconnects_mid_stream(visit: Visit) -> None:
    endpoint = visit.endpoint()
    async with visit.connect() as line, visit.report(endpoint, line):
        line.send(visit.body(endpoint, LONG, stream=True), PATHS[endpoint])
        if not await line.receive_tokens(visit.chance.randint(2, 20)):
            await line.receive_all()
        line.writer.transport.abort()


async def half_closes(visit: Visit) -> None:
    """Disconnect at a random moment, and read the data sent before it, to see how far the request came."""
    endpoint = visit.endpoint()
    async with visit.connect() as line, visit.report(endpoint, line):
        line.send(visit.body(endpoint, LONG, stream=visit.chance.random() < 0.5), PATHS[endpoint])
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(visit.chance.uniform(0.05, 0.5)):
                await line.receive_all()
        line.writer.write_eof()
        await line.receive_all()


async def sends_part_of_a_body(visit: Visit) -> None:
    """Send the beginning of a body, then disconnect."""
    endpoint = visit.endpoint()
    async with visit.connect() as line, visit.report(endpoint, line):
        line.send(b'{"messages": ', PATHS[endpoint], length=500)
        await asyncio.sleep(0.15)
        line.writer.write_eof()
        await line.receive_all()


async def sets_a_short_timeout(visit: Visit) -> None:
    endpoint = visit.endpoint()
    async with visit.connect() as line, visit.report(endpoint, line):
        stream = visit.chance.random() < 0.5
        line.send(visit.body(endpoint, LONG, timeout=visit.chance.uniform(0.02, 0.4), stream=stream), PATHS[endpoint])
        await line.receive_all()


async def sends_a_burst(visit: Visit) -> None:
    """Send more requests at once than can run and wait."""
    async with asyncio.TaskGroup() as burst:
        for _ in range(20):
            burst.create_task(reads_a_stream(visit))


CLIENTS: dict[Client, int] = {
    reads_a_stream: 34,
    sends_three_requests: 10,
    sends_invalid_requests: 14,
    disconnects_mid_stream: 10,
    half_closes: 10,
    sets_a_short_timeout: 8,
    sends_part_of_a_body: 5,
    reads_slowly: 4,
    stops_reading: 2,
    sends_a_burst: 1,
}
