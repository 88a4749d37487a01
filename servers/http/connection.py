"""A client's connection: uvicorn's, with limits on everything except a request's body, and with an end for every
request.

uvicorn has no limit for a head, and copies all of an incomplete header field whenever more of it arrives. With
pipelined requests, only the newest learns that the client has left, and a running one would write to a closed
connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from servers.http.api_errors import ApiError, bad_request

MAX_HEAD = 64 * 1024  # bytes; sizes of chunks, their extensions and trailers may be that many more than the body
PART = 16 * 1024  # bytes
TIMEOUT = 60.0  # seconds from the first read of a request to its end
MAX_PIPELINED = 256  # requests that wait for the answers before theirs
OFFERS = {b"upgrade", b"http2-settings"}  # headers, and options of the header Connection
READ_AHEAD = 1024 * 1024  # bytes of such requests; only further reads notice that a client leaves

TOO_LARGE = ApiError(
    431, f"A request's head, chunk extensions and trailers are limited to {MAX_HEAD} bytes.", code="head_too_large"
)
TOO_SLOW = ApiError(408, f"A request must arrive within {TIMEOUT:g} s.", code="too_slow")


class Connection(HttpToolsProtocol):
    """`_framing` is the number of bytes of the current request outside its body, less the number inside."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._framing = self._read_ahead = 0
        self._in_head = True
        self._timer: asyncio.TimerHandle | None = None
        self._unanswered: deque[RequestResponseCycle] = deque()

    def data_received(self, data: bytes) -> None:
        """Parse in parts: a read may hold 50,000 headers or chunks, which are counted after parsing."""
        for start in range(0, len(data), PART):
            self._receive(data[start : start + PART])
            if self.transport.is_closing():
                break

    def _receive(self, data: bytes) -> None:
        self._framing += len(data)
        self._read_ahead = self._read_ahead + len(data) if self.pipeline else 0
        self._parse(data)
        if self.pipeline and self._read_ahead <= READ_AHEAD:
            self.flow.resume_reading()
        if self._framing > MAX_HEAD:
            self._refuse(TOO_LARGE)
        else:
            self._await_rest()

    def _parse(self, data: bytes) -> None:
        """Parse a part. An offer to change the protocol, as JDK clients make with every request, is ignored (RFC 9110,
        section 7.8): the parser would skip the body, so the request is parsed again without the offer."""
        self._unset_keepalive_if_required()
        try:
            while data:
                try:
                    self.parser.feed_data(data)
                    break
                except HttpParserUpgrade as offer:
                    data = self._head_without_offer() + data[offer.args[0] :]
                    self.parser = HttpRequestParser(self)
                    self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        except HttpParserError:
            self.send_400_response("Invalid HTTP request received.")

    def _head_without_offer(self) -> bytes:
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        for name, value in self.headers:
            if name == b"connection":
                options = [option.strip() for option in value.split(b",")]
                value = b", ".join(option for option in options if option.lower() not in OFFERS)
            if name not in OFFERS:
                lines.append(b"%s: %s" % (name, value))
        return b"\r\n".join([*lines, b"", b""])

    def on_headers_complete(self) -> None:
        if self.parser.get_method() == b"CONNECT":
            self._refuse(bad_request("This server is no proxy: CONNECT is not supported."))
            raise ValueError("the parser stops here")
        if self.parser.should_upgrade():
            return
        # A part may hold the end of the previous request; the bytes after it are not counted.
        if self._framing > MAX_HEAD - PART and self._head_size() > MAX_HEAD:
            self._refuse(TOO_LARGE)
            raise ValueError("the parser stops here")
        super().on_headers_complete()
        self._in_head = False
        self.headers = []  # for trailers, which are not read
        self._unanswered.append(self.cycle)
        if len(self.pipeline) > MAX_PIPELINED:
            self._end()
            raise ValueError("the parser stops here")

    def on_body(self, body: bytes) -> None:
        self._framing -= 2 * len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        super().on_message_complete()
        self._framing, self._in_head = 0, True
        self._stop_timer()

    def on_response_complete(self) -> None:
        self._unanswered.popleft()
        super().on_response_complete()
        self._await_rest()  # the next request may have begun, and no more of it may arrive

    def send_400_response(self, msg: str) -> None:
        """Called when the parser has stopped."""
        self._refuse(bad_request(msg))

    def connection_lost(self, exc: Exception | None) -> None:
        self._disconnect()
        super().connection_lost(exc)

    def _await_rest(self) -> None:
        """Limit the time of a request that has begun to arrive, unless the one before it is still being answered."""
        if self._timer is None and (self._framing or not self._in_head) and not self._answers_another():
            self._timer = self.loop.call_later(TIMEOUT, self._refuse, TOO_SLOW)

    def _answers_another(self) -> bool:
        """Return whether a request before the arriving one has no complete answer yet."""
        return len(self._unanswered) > (0 if self._in_head else 1)

    def _head_size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)

    def _refuse(self, error: ApiError) -> None:
        """Close the connection, with a response if none is under way and no earlier request waits for its own."""
        if self.transport.is_closing():
            return
        if not self._answers_another() and (self._in_head or not self.cycle.response_started):
            body = error.body()
            head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
            self.transport.write(STATUS_LINE[error.status] + head + body)
        self._end()

    def _end(self) -> None:
        self._disconnect()
        self.transport.close()

    def _disconnect(self) -> None:
        self._stop_timer()
        self.pipeline.clear()
        for cycle in self._unanswered:
            cycle.disconnected = True
            cycle.message_event.set()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
