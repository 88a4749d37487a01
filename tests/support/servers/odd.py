"""A server with unusual behaviour, one case per row: `Odd(chat=…, routes={"/v1/models": …})`.

    with OddServer(Odd(chat=answer(token(), token(), usage=usage(2)))) as server:
        ...  # a client, or a process of `enginebench run concurrent --url server.url`

A script is a list of steps, or a function of the request that yields them: bytes are one write, a number is a pause in
seconds, and "close" and "reset" end the connection, which otherwise stays open for the next request. A function may
yield without end.
"""

from __future__ import annotations

import ssl
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.support.servers.wire_script import DONE, END, HEAD, Step, WireServer, event, frame, json_answer, token

MODELS: Sequence[Step] = [json_answer("200 OK", {"object": "list", "data": [{"id": "odd-model", "object": "model"}]})]
NOT_FOUND: Sequence[Step] = [json_answer("404 Not Found", {"error": {"message": "no such page"}})]


@dataclass(frozen=True, slots=True)
class Request:
    """`turn` counts the requests of one connection from 1, `number` those of the server at this path."""

    method: str
    path: str  # with its query
    headers: Mapping[str, str]  # names in lower case
    body: bytes
    turn: int
    number: int


Script = Sequence[Step] | Callable[[Request], Iterable[Step]]


def answer(*events: bytes, gap: float = 0.0, usage: object = None) -> list[Step]:
    """Return a stream of server-sent events, each after `gap` seconds, its usage, and its end."""
    steps: list[Step] = [HEAD]
    for one in events:
        steps += [gap, frame(one)] if gap else [frame(one)]
    last = event({"choices": [], "usage": usage}) if usage is not None else b""
    return [*steps, (frame(last) if last else b"") + frame(DONE) + END]


@dataclass(frozen=True, slots=True)
class Odd:
    """`chat` answers at `path`, and `routes` at their paths, with or without a query; all others are 404."""

    chat: Script = field(
        default_factory=lambda: answer(token(), token(), usage={"prompt_tokens": 7, "completion_tokens": 2})
    )
    routes: Mapping[str, Script] = field(default_factory=dict)
    path: str = "/v1/chat/completions"


class OddServer(WireServer):
    """`asked` has the requests in order. `tls` is the context of a server with a certificate."""

    def __init__(self, case: Odd, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls=tls)
        self._routes = {"/v1/models": MODELS, case.path: case.chat, **case.routes}
        self._noting = threading.Lock()
        self.asked: list[Request] = []

    def asked_at(self, path: str) -> list[Request]:
        return [request for request in self.asked if request.path == path]

    def _script(self, request: bytes, turn: int) -> Iterable[Step]:
        head, _, body = request.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        with self._noting:
            asked = Request(method, path, headers, body, turn, len(self.asked_at(path)) + 1)
            self.asked.append(asked)
        script = self._routes.get(path) or self._routes.get(path.partition("?")[0]) or NOT_FOUND
        return script(asked) if callable(script) else script


# Behaviours, for any route.

JSON_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
MEGABYTE = 1024 * 1024


def closes(_: Request) -> Iterator[Step]:
    """Close without a byte."""
    yield "close"


def resets(_: Request) -> Iterator[Step]:
    yield "reset"


def hangs(_: Request) -> Iterator[Step]:
    """Never answer, and keep the connection open."""
    while True:
        yield 0.5


def trickles(data: bytes, seconds: float = 1.0) -> Script:
    """Send `data` repeatedly, one byte at a time."""

    def script(_: Request) -> Iterator[Step]:
        while True:
            for byte in data:
                yield bytes([byte])
                yield seconds

    return script


def endless(piece: bytes, head: bytes = b"", pause: float = 0.0) -> Script:
    """Send `head`, then `piece` without end."""

    def script(_: Request) -> Iterator[Step]:
        yield head
        while True:
            yield piece
            if pause:
                yield pause

    return script


def compressed(data: bytes, times: int, head: bytes) -> Script:
    """Send `head`, which names the encoding, then `data` `times` as gzip: a bomb if `data` is repetitive."""

    def script(request: Request) -> Iterator[Step]:
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)  # gzip
        yield head
        for _ in range(times):
            if piece := packer.compress(data):
                yield frame(piece)
        yield frame(packer.flush()) + END

    return script


CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
endless_continue = endless(CONTINUE, pause=0.01)
endless_continue_at_once = endless(CONTINUE * 1000)
endless_header = endless(b"a" * MEGABYTE, b"HTTP/1.1 200 OK\r\nX-Endless: ")
endless_headers = endless(b"".join(b"X-%d: %s\r\n" % (n, b"a" * 1000) for n in range(1000)), b"HTTP/1.1 200 OK\r\n")
endless_json = endless(frame(b'"' + b"a" * MEGABYTE + b'",'), JSON_HEAD + frame(b'{"object": "list", "data": ['))
endless_line = endless(frame(b"a" * MEGABYTE), HEAD + frame(b"data: "))
endless_event = endless(frame(b"data: " + b"a" * 1000 + b"\n") * 1000, HEAD)
endless_comment = endless(frame(b"a" * MEGABYTE), HEAD + frame(b": "))
endless_text = endless(frame(token("a" * MEGABYTE)), HEAD)
endless_tokens = endless(frame(token()) * 1000, HEAD)
endless_chunk_size = endless(b"0" * MEGABYTE, HEAD)
endless_trailer = endless(b"a" * MEGABYTE, HEAD + frame(token()) + frame(DONE) + b"0\r\nX-Endless: ")
GZIPPED_HEAD = HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
GZIPPED_JSON = JSON_HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
gzip_bomb = compressed(b" " * MEGABYTE, 1500, GZIPPED_JSON)
gzip_stream = compressed(token("a" * MEGABYTE), 1500, GZIPPED_HEAD)
