"""The responses of `/v1/chat/completions` and `/v1/completions`, from reading the body to the last byte.

    headers → refused, or body → checked and tokenised → a slot → engine → chunks → written as they come

The response speaks ASGI directly, so that no framework code runs between an engine's chunk and its write. Every request
ends in exactly one outcome, and is counted once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from time import monotonic as clock  # as in the chunks' stamps
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from engines.contract.errors import EngineError
from engines.process.stream import ReceivedChunk, Stream
from servers.admission import QueueFull
from servers.http.access import check_headers, read_body
from servers.http.api_errors import ApiError, ClientGone, ServerOutcome, bad_request, from_engine, unexpected
from servers.lifecycle import Lifecycle
from servers.openai.intake import AcceptedRequest, Intake
from servers.openai.wire import Ending, Endpoint, Wire
from servers.prometheus_metrics import Metrics
from servers.request_times import RequestTimes
from servers.settings import ServerSettings

PATHS: dict[str, Endpoint] = {"/v1/chat/completions": "chat", "/v1/completions": "completions"}
LAST_EVENT = 5.0  # seconds to write it
EVENT_STREAM = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would hold chunks back
]


@dataclass(frozen=True, slots=True)
class Context:
    """The parts that all requests to a server share."""

    settings: ServerSettings
    lifecycle: Lifecycle
    intake: Intake
    metrics: Metrics


class CompletionPaths:
    """Answer the two completion paths ahead of FastAPI's routing, which only refuses their other methods.

    A stream is resumed and sends once per token; each layer of the framework between them would be passed both times.
    """

    def __init__(self, app: ASGIApp, context: Context) -> None:
        self._app = app
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST" and scope["path"] in PATHS:
            await CompletionResponse(self._context, PATHS[scope["path"]])(scope, receive, send)
        else:
            await self._app(scope, receive, send)


class CompletionResponse:
    """Read the body itself, so that every error of a request is handled and counted in one place."""

    def __init__(self, context: Context, endpoint: Endpoint) -> None:
        self._context = context
        self._endpoint: Endpoint = endpoint
        self._head_sent = self._in_stream = False
        self._gone = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        outcome: ServerOutcome = "cancelled"  # also if this task is cancelled because the server stops
        self._send = send
        try:
            await self._answer(scope, receive)
            outcome = "ok"
        except ClientGone:
            pass
        except QueueFull as full:
            outcome = "rejected"
            refusal = ApiError(429, str(full), code="queue_full", retry_after=full.retry_after)
            await self._refuse(refusal, scope, receive)
        except ApiError as error:
            outcome = error.outcome
            await self._refuse(error, scope, receive)
        except asyncio.CancelledError:  # the server stops, and waits no longer: for the rest of a body, for example
            if self._head_sent:
                raise
            outcome = "unavailable"
            await self._refuse(self._context.lifecycle.unavailable("draining"), scope, receive)
        except Exception as error:
            outcome = "engine_error"
            await self._refuse(unexpected(error), scope, receive)
        finally:
            self._context.metrics.requests[self._endpoint, outcome] += 1

    async def _answer(self, scope: Scope, receive: Receive) -> None:
        context = self._context
        info = context.lifecycle.info()
        admission = context.lifecycle.admission
        check_headers(scope["headers"], context.settings)
        admission.refuse_if_full()  # without reading the body
        content = await read_body(receive, context.settings.max_body_bytes)
        received = clock()
        with admission.preparing():
            accepted = await context.intake.accept(content, self._endpoint, info)
        if accepted.streamed and scope["http_version"] == "1.0":
            raise bad_request("A stream needs HTTP/1.1 (behind nginx: `proxy_http_version 1.1`).", "stream")
        request = accepted.request
        times = RequestTimes(context.metrics, received, len(request.prompt_token_ids), len(request.forced_token_ids))
        try:
            async with asyncio.timeout(accepted.timeout - (clock() - received)) as deadline:
                watcher = asyncio.get_running_loop().create_task(self._watch(receive, deadline))
                try:
                    async with self._admitted(accepted, times) as stream:
                        await (self._in_events if accepted.streamed else self._in_one_piece)(accepted, stream, times)
                finally:
                    watcher.cancel()
        except TimeoutError:
            if self._gone:
                raise ClientGone from None
            raise ApiError(504, f"The answer was not complete within {accepted.timeout:g} s.", code="timeout") from None
        except EngineError as error:
            if context.lifecycle.state == "draining":
                raise context.lifecycle.unavailable("draining") from None
            raise from_engine(error) from None

    async def _watch(self, receive: Receive, deadline: asyncio.Timeout) -> None:
        """When the client disconnects, expire the deadline: both cases then stop the request in the same way."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        if not deadline.expired():
            deadline.reschedule(asyncio.get_running_loop().time())

    @asynccontextmanager
    async def _admitted(self, accepted: AcceptedRequest, times: RequestTimes) -> AsyncIterator[Stream]:
        """Wait for a slot and start the request. The slot is released when the engine has really stopped."""
        lifecycle = self._context.lifecycle
        slot = await lifecycle.admission.enter()
        try:
            await lifecycle.until_ready()  # a request that waited when the engine crashed keeps its turn
            times.admit(clock())
            stream = lifecycle.engine.generate(accepted.request)
        except BaseException:
            slot.release()
            raise
        stream.on_end = slot.release
        try:
            yield stream
        finally:
            stream.cancel()  # does nothing if the answer is complete

    async def _in_events(self, accepted: AcceptedRequest, stream: Stream, times: RequestTimes) -> None:
        wire, send = accepted.wire, self._send
        async for chunks in stream:
            times.receive(chunks)
            data = wire.chunks(chunks)
            if not self._head_sent:
                await self._send_head(wire, times)
                data = wire.opening() + data
            if data:
                await send({"type": "http.response.body", "body": data, "more_body": True})
                if self._gone:  # writing to a lost connection raises nothing, and all chunks may be ready at once
                    raise ClientGone
        await asyncio.sleep(0)  # lets a disconnect that arrived with the last chunks be noticed
        if self._gone:
            raise ClientGone
        closing = wire.closing(_ending(stream, times))
        if not self._head_sent:
            await self._send_head(wire, times)
            closing = wire.opening() + closing
        await send({"type": "http.response.body", "body": closing, "more_body": False})

    async def _send_head(self, wire: Wire, times: RequestTimes) -> None:
        """Sent with the first token, so that a request that fails before it gets a proper status."""
        first = clock() if times.first is None else times.first
        timing = _server_timing(queue=times.admitted - times.received, prefill=first - times.admitted)
        headers = [*EVENT_STREAM, (b"server-timing", timing), (b"x-request-id", wire.id.encode())]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        self._head_sent = self._in_stream = True  # not before: with a slow reader, sending may end at the deadline

    async def _in_one_piece(self, accepted: AcceptedRequest, stream: Stream, times: RequestTimes) -> None:
        kept: list[ReceivedChunk] = []
        async for chunks in stream:
            times.receive(chunks)
            kept += chunks
        ending = _ending(stream, times)
        body = accepted.wire.whole(kept, ending)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"server-timing", _server_timing(**ending.timing())),
            (b"x-request-id", accepted.wire.id.encode()),
        ]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        self._head_sent = True
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    async def _refuse(self, error: ApiError, scope: Scope, receive: Receive) -> None:
        """Send a status and a JSON document; in a stream that has begun, an event, and no `[DONE]`. A document that has
        begun is only cut off."""
        if self._head_sent and not self._in_stream:
            return
        event: dict[str, Any] = {"type": "http.response.body", "body": b"data: " + error.body() + b"\n\n"}
        with suppress(TimeoutError):  # a client that stops reading would hold the request forever
            async with asyncio.timeout(LAST_EVENT):
                if self._head_sent:
                    await self._send(event)
                else:
                    await error.response()(scope, receive, self._send)


def _ending(stream: Stream, times: RequestTimes) -> Ending:
    if stream.finish_reason in (None, "cancelled"):
        raise EngineError("the engine cancelled this request.")
    return times.complete(stream.finish_reason, clock(), stream.usage)


def _server_timing(**seconds: float) -> bytes:
    """Format the times in milliseconds, the unit of the Server-Timing header (W3C)."""
    return ", ".join(f"{name};dur={1e3 * value:.3f}" for name, value in seconds.items()).encode()
