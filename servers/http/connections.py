"""uvicorn's HTTP connection with limits that uvicorn leaves to a proxy, and with errors in OpenAI's shape.

pipelining     some requests are read ahead; where the client disconnects, the one that is running learns of it, too
headers        limited in size and in time to arrive
idle           a connection without a request is closed, whether or not it had one before
slow readers   a client that does not read its answer is disconnected
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from servers.http.errors import ApiError
from servers.settings import ServerSettings

MOST_PIPELINED = 16  # requests that are read while another one of the same connection runs


class HttpConnection(HttpToolsProtocol):
    """`settings` is set on the subclass that `limited` makes."""

    settings: ServerSettings

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._running: RequestResponseCycle | None = None  # uvicorn's `cycle` is that of the request read last
        self._in_headers = False
        self._header_bytes = 0
        self._header_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._refusal = ApiError(400, "This is not valid HTTP.")
        self._refused = False
        self._idle_since = self.loop.time()
        self.timeout_keep_alive = self.settings.keep_alive  # type: ignore[assignment]  # uvicorn's setting is an integer

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._close_when_idle()  # uvicorn starts this timer only after the first response

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_header_timer()
        self._stop_write_timer()
        self._unset_keepalive_if_required()
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)

    # Reading.

    @property
    def _answering(self) -> bool:
        return bool(self.pipeline) or (self.cycle is not None and not self.cycle.response_complete)

    def _close_when_idle(self) -> None:
        due = self._idle_since + self.settings.keep_alive
        self.timeout_keep_alive_task = self.loop.call_at(due, self.timeout_keep_alive_handler)

    def on_response_complete(self) -> None:
        self._idle_since = self.loop.time()
        if self.pipeline:
            self._running = self.pipeline[-1][0]
        super().on_response_complete()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        super().data_received(data)
        if not (self._answering or self._in_headers or self._refused):
            self._close_when_idle()  # uvicorn stops the timer at any byte, also at one that begins no request
        if self._in_headers:  # an unfinished line has not been counted by on_header
            self._header_bytes += len(data)
            if self._header_bytes > self.settings.max_header_bytes and not self.transport.is_closing():
                self._refusal = self._too_large()
                self.send_400_response(self._refusal.message)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_headers, self._header_bytes = True, 0
        self._header_timer = self.loop.call_later(self.settings.header_timeout, self._headers_are_late)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > self.settings.max_header_bytes:
            self._refusal = self._too_large()
            raise ValueError(self._refusal.message)  # the parser stops, and uvicorn calls send_400_response
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._stop_header_timer()
        super().on_headers_complete()
        if not self.pipeline:
            self._running = self.cycle
        elif len(self.pipeline) <= MOST_PIPELINED:
            self.flow.resume_reading()  # uvicorn stops reading here, and so would not notice that the client leaves

    def send_400_response(self, msg: str) -> None:
        """Send the error and close the connection, after the response that is being sent, if any."""
        self._stop_header_timer()
        self._refused = True
        if self._answering:
            self.cycle.keep_alive = False
            if self.pipeline or not self.cycle.more_body:
                return  # the error is in a later request, whose client has not had the responses before it
            if self.cycle.response_started:
                self.transport.close()
                return
        body = self._refusal.body()
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[self._refusal.status] + head + body)
        self.transport.close()

    def _too_large(self) -> ApiError:
        return ApiError(431, f"The headers are larger than {self.settings.max_header_bytes} bytes.")

    def _headers_are_late(self) -> None:
        if not self.transport.is_closing():
            self._refusal = ApiError(408, f"The headers did not arrive within {self.settings.header_timeout:g} s.")
            self.send_400_response(self._refusal.message)

    def _stop_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    # Writing.

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timer = self.loop.call_later(self.settings.write_timeout, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_write_timer()
        super().resume_writing()

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None


def limited(settings: ServerSettings) -> type[HttpConnection]:
    """A class for uvicorn, which creates connections itself and passes them no settings."""
    return type("LimitedConnection", (HttpConnection,), {"settings": settings})
