"""A client's connection: uvicorn's, with limits on what is not a request's body, and with an end for every request.

uvicorn has no limit for a head, and copies all of an incomplete header field whenever more of it arrives. Of pipelined
requests, it tells only the newest that the client has left, and one that runs would write to a closed connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from servers.http.errors import ApiError, bad_request

MAX_HEAD = 64 * 1024  # bytes; sizes of chunks, their extensions and trailers may be that many more than the body
HEAD_TIMEOUT = 30.0  # seconds from the first read of a head to its end
MAX_PIPELINED = 256  # requests that wait for the answers before theirs
READ_AHEAD = 1024 * 1024  # bytes of such requests; reading on is how it is noticed that a client leaves

TOO_LARGE = ApiError(
    431, f"A request's head, chunk extensions and trailers are limited to {MAX_HEAD} bytes.", code="head_too_large"
)
TOO_SLOW = ApiError(408, f"A request's head must arrive within {HEAD_TIMEOUT:g} s.", code="head_too_slow")


class Connection(HttpToolsProtocol):
    """`_framing` is the bytes of the current request that are not its body, less as many as the body has."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._framing = self._read_ahead = 0
        self._in_head = True
        self._head_timer: asyncio.TimerHandle | None = None
        self._unanswered: deque[RequestResponseCycle] = deque()

    def data_received(self, data: bytes) -> None:
        self._framing += len(data)
        self._read_ahead = self._read_ahead + len(data) if self.pipeline else 0
        super().data_received(data)
        if self.pipeline and self._read_ahead <= READ_AHEAD:
            self.flow.resume_reading()
        if self._framing > MAX_HEAD:
            self._refuse(TOO_LARGE)
        elif self._in_head and self._framing and not self._unanswered and self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_TIMEOUT, self._refuse, TOO_SLOW)

    def on_headers_complete(self) -> None:
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > MAX_HEAD:
            self._refuse(TOO_LARGE)
            raise ValueError("the parser stops here")
        super().on_headers_complete()
        self._in_head = False
        self._stop_head_timer()
        self.headers = []  # for trailers, which nobody reads
        self._unanswered.append(self.cycle)
        if len(self.pipeline) > MAX_PIPELINED:
            self._end()
            raise ValueError("the parser stops here")

    def on_body(self, body: bytes) -> None:
        self._framing -= 2 * len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._framing, self._in_head = 0, True

    def on_response_complete(self) -> None:
        self._unanswered.popleft()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Called where the parser has stopped."""
        self._refuse(bad_request(msg))

    def connection_lost(self, exc: Exception | None) -> None:
        self._disconnect()
        super().connection_lost(exc)

    def _refuse(self, error: ApiError) -> None:
        """Close the connection, with a response if none is under way and no earlier request waits for its own."""
        if self.transport.is_closing():
            return
        expected = [] if self._in_head else [self.cycle]
        if list(self._unanswered) == expected and not any(cycle.response_started for cycle in expected):
            body = error.body()
            head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
            self.transport.write(STATUS_LINE[error.status] + head + body)
        self._end()

    def _end(self) -> None:
        self._disconnect()
        self.transport.close()

    def _disconnect(self) -> None:
        self._stop_head_timer()
        self.pipeline.clear()
        for cycle in self._unanswered:
            cycle.disconnected = True
            cycle.message_event.set()

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
