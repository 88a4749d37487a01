"""Small requests that are not measured: questions to a server before a run, and scrapes during it.

Each has a deadline for the whole answer, excluding the name look-up, and a limit on its size, so a server that sends a
byte a second, or `100 Continue` forever, blocks nothing. No redirect is followed, and compressed answers are refused.

httpx is not used, because its responses and streams refer to each other: the garbage collector runs rarely during a
run, so two copies of each page would stay in memory.
"""

from __future__ import annotations

import json
import re
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import Any

import httpcore

from enginebench.records.plain_text import plain_json
from loadtests.harness.client.authentication import Access
from loadtests.harness.client.headers import merged_headers
from loadtests.harness.client.limits import LIMIT, TOO_LONG
from loadtests.harness.client.server_address import Address
from loadtests.harness.client.tls import not_trusted, tls_context

DEADLINE = 5.0  # seconds
ERRNO = re.compile(r"^\[Errno -?\d+\] ")
UNENCODED = {"", "identity", "none"}
FAILED = (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError)


class NoAnswer(OSError):
    """The server gave no answer to a question. The text is the reason."""


class NoConnection(NoAnswer):
    """No connection to the server could be opened."""


class NotTrusted(NoConnection):
    """The server's certificate is not trusted. The text is a sentence."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The head of an answer, and the pieces of its body. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    pieces: Iterator[bytes]

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def location(self) -> str | None:
        return self.headers.get("location") if 300 <= self.status < 400 else None

    def read(self) -> bytes:
        """Read the rest of the body. Raises `NoAnswer`."""
        return b"".join(self.pieces)


class Questions:
    """Ask one server. `keep` keeps the connection open between questions. Raises `UserMistake` for an invalid file of
    certificates."""

    def __init__(self, address: Address, access: Access, keep: bool = False) -> None:
        self._address, self._headers = address, access.headers
        self._bounds = _Bounds()
        self._http = httpcore.ConnectionPool(
            ssl_context=tls_context(access.tls) if address.tls else None,
            max_keepalive_connections=1 if keep else 0,
            network_backend=self._bounds,
        )

    def close(self) -> None:
        self._http.close()

    @contextmanager
    def ask(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        seconds: float | None = None,
    ) -> Iterator[Reply]:
        """Ask for `target`, a path and query. The user's headers replace `headers` of the same name. Raises
        `NoAnswer`."""
        address, seconds = self._address, DEADLINE if seconds is None else seconds
        ours = {"Host": address.authority, "User-Agent": "enginebench", "Accept-Encoding": "identity"}
        url = httpcore.URL(
            scheme=b"https" if address.tls else b"http",
            host=address.host.encode(),
            port=address.port,
            target=target.encode(),
        )
        sent = list(merged_headers(ours, headers or {}, self._headers).items())
        self._bounds.ends, self._bounds.asked = time.monotonic() + seconds, False
        try:
            with self._http.stream(method, url, headers=sent, content=body or None) as answer:
                received = {name.lower().decode("latin-1"): value.decode("latin-1") for name, value in answer.headers}
                encoding = received.get("content-encoding", "")
                if encoding.strip().lower() not in UNENCODED:
                    raise NoAnswer(f"its answer is compressed ({encoding})")
                yield Reply(answer.status, received, _limited(answer.iter_stream()))
        except FAILED as error:
            raise self._no_answer(error, seconds) from error

    def json(self, method: str, target: str, document: Any = None, seconds: float | None = None) -> dict[str, Any]:
        """Return the JSON object that the server sends; empty for any other answer. Raises `NoAnswer`."""
        body = b"" if document is None else json.dumps(document).encode()
        kind = {"Content-Type": "application/json"} if body else {}
        with self.ask(method, target, body, kind, seconds) as reply:
            return json_object(reply.read()) if reply.is_success else {}

    def _no_answer(self, error: Exception, seconds: float) -> NoAnswer:
        cause = error.args[0] if error.args else None  # httpcore's errors contain the original ones
        if isinstance(cause, ssl.SSLCertVerificationError):
            return NotTrusted(not_trusted(self._address.origin, cause))
        if isinstance(error, httpcore.ConnectError):
            return NoConnection(ERRNO.sub("", str(error)) or type(error).__name__)
        if isinstance(error, httpcore.TimeoutException):
            reason = f"within {seconds:g} s"
            return NoAnswer(f"no answer {reason}") if self._bounds.asked else NoConnection(f"no connection {reason}")
        return NoAnswer(ERRNO.sub("", str(error)).rstrip(".") or type(error).__name__)


def json_object(content: bytes) -> dict[str, Any]:
    """Read a JSON object; return an empty one for any other content."""
    try:
        document = plain_json(json.loads(content))
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _limited(pieces: Iterable[bytes]) -> Iterator[bytes]:
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > LIMIT:
            raise NoAnswer(f"its answer {TOO_LONG}")
        yield piece


class _Bounds(httpcore.NetworkBackend):
    """Connections that end when the monotonic clock reads `ends`."""

    def __init__(self) -> None:
        self.ends = inf
        self.asked = False  # whether any part of the question was written
        self._backend = httpcore.SyncBackend()

    @property
    def left(self) -> float:
        """Return the seconds left. Raises `httpcore.ReadTimeout` after the deadline."""
        if (seconds := self.ends - time.monotonic()) <= 0:
            raise httpcore.ReadTimeout
        return seconds

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        return _BoundStream(self._backend.connect_tcp(host, port, self.left, local_address, socket_options), self)


class _BoundStream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream, bounds: _Bounds) -> None:
        self._stream, self._bounds = stream, bounds

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._bounds.left)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._bounds.asked = True
        self._stream.write(buffer, self._bounds.left)

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _BoundStream(self._stream.start_tls(ssl_context, server_hostname, self._bounds.left), self._bounds)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
