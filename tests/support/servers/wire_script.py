"""A raw server that sends exactly the scripted bytes, write by write, and records when it wrote each."""

from __future__ import annotations

import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self

Step = bytes | float | Literal["close", "reset"]
"""Bytes are one write, a number is a pause in seconds; without "close" or "reset", the connection stays open."""


@dataclass(frozen=True, slots=True)
class Write:
    """Monotonic nanoseconds before and after a write."""

    before: int
    after: int


class WireServer:
    """Answer the n-th request with the n-th script (the last one repeatedly), on any number of connections."""

    def __init__(self, *scripts: Sequence[Step], tls: ssl.SSLContext | None = None) -> None:
        self._scripts = scripts
        self._tls = tls
        self.requests: list[bytes] = []
        self.connections = 0
        self.received: list[int] = []  # when each request was complete
        self.writes: list[list[Write]] = []  # per request
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._writing = threading.Lock()
        self._thread = threading.Thread(target=self._accept, daemon=True)

    @property
    def url(self) -> str:
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_listening()
        for sock in self._open:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)  # wakes a thread that reads or writes
            sock.close()

    def stop_listening(self) -> None:
        """Refuse new connections from now on."""
        with suppress(OSError):  # done already
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def finish_writing(self) -> None:
        """Wait until the last write is recorded: the client may have its bytes before the server's thread runs on."""
        with self._writing:
            pass

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        try:
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True)
            self._open.append(sock)
            turn = 0
            while (request := self._read_request(sock)) is not None:
                writes: list[Write] = []
                self.writes.append(writes)
                turn += 1
                for step in self._script(request, turn):
                    if not self._do(sock, step, writes):
                        return
        except OSError:
            return

    def _script(self, request: bytes, turn: int) -> Iterable[Step]:
        """Return the script for `request`, which is the `turn`-th of its connection."""
        return self._scripts[min(len(self.requests), len(self._scripts)) - 1]

    def _read_request(self, sock: socket.socket) -> bytes | None:
        message = b""
        while b"\r\n\r\n" not in message:
            data = sock.recv(65536)
            if not data:
                return None
            message += data
        head, _, body = message.partition(b"\r\n\r\n")
        lengths = (line[15:] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        length = int(next(lengths, b"0"))
        if b"x-hold-body" in head.lower():  # answer without reading the rest
            length = 0
        while len(body) < length:
            data = sock.recv(65536)
            if not data:
                return None
            body += data
        self.received.append(time.monotonic_ns())
        request = head + b"\r\n\r\n" + body
        self.requests.append(request)
        return request

    def _do(self, sock: socket.socket, step: Step, writes: list[Write]) -> bool:
        if isinstance(step, bytes):
            with self._writing:
                before = time.monotonic_ns()
                sock.sendall(step)
                writes.append(Write(before, time.monotonic_ns()))
        elif isinstance(step, float):
            time.sleep(step)
        elif step == "close":
            sock.close()
            return False
        elif step == "reset":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()
            return False
        return True


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
HEAD_UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
END = b"0\r\n\r\n"
DONE = b"data: [DONE]\n\n"


def frame(data: bytes) -> bytes:
    """Return one HTTP chunk."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(document: object) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def delta(**fields: object) -> bytes:
    """Return a chat chunk with these fields in its delta."""
    return event({"choices": [{"index": 0, "delta": fields, "finish_reason": None}]})


def token(text: str = " word") -> bytes:
    return delta(content=text)


def finish(reason: str = "stop", **facts: object) -> bytes:
    """Return the chunk with the finish reason and further `facts` (`usage`, `timing`)."""
    return event({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}], **facts})


def usage(completion_tokens: int, prompt_tokens: int = 7) -> dict[str, object]:
    return {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}


def json_answer(status: str, document: object, headers: bytes = b"") -> bytes:
    body = json.dumps(document).encode()
    return b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n%s" % (
        status.encode(),
        len(body),
        headers,
        body,
    )
