"""One request, from its body to its last byte: the answer to `/v1/chat/completions` and `/v1/completions`.

    body → checked and tokenised → admitted, or refused → engine → chunks → written as they come

The answer is a raw ASGI response: no framework stands between an engine's chunk and its write. Every request ends in
exactly one outcome, and is counted once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import perf_counter as clock
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from engines.contract.base import EngineError
from engines.process.stream import ReceivedChunk, Stream
from servers.admission import QueueFull
from servers.http.access import read_body
from servers.http.errors import ApiError, ClientGone, Outcome, from_engine, unexpected
from servers.lifecycle import Lifecycle
from servers.metrics import Metrics
from servers.openai.intake import Call, Intake
from servers.openai.schemas import ChatRequest, CompletionRequest
from servers.openai.wire import Ending, Endpoint, Wire
from servers.settings import Settings
from servers.timeline import Timeline

EVENT_STREAM = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would hold chunks back
]


@dataclass(frozen=True, slots=True)
class Room:
    """What all requests of one server share."""

    settings: Settings
    lifecycle: Lifecycle
    intake: Intake
    metrics: Metrics


class Answer(Response):
    """The answer to one request. Reads the body itself, and tells the client whatever goes wrong."""

    background = None

    def __init__(self, room: Room, endpoint: Endpoint) -> None:
        self._room = room
        self._endpoint: Endpoint = endpoint
        self._head_sent = False
        self._gone = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        outcome: Outcome = "cancelled"  # also where the server's own end cuts this task short
        self._send = send
        try:
            await self._answer(scope, receive)
            outcome = "ok"
        except ClientGone:
            pass  # nobody is there to be told
        except ApiError as error:
            outcome = error.outcome
            await self._refuse(error, scope, receive)
        except Exception as error:
            outcome = "engine_error"
            await self._refuse(unexpected(error), scope, receive)
        finally:
            self._room.metrics.requests[self._endpoint, outcome] += 1

    async def _answer(self, scope: Scope, receive: Receive) -> None:
        room = self._room
        info = room.lifecycle.info()
        content = await read_body(scope, receive, room.settings)
        received = clock()
        if self._endpoint == "chat":
            call = await room.intake.chat(room.intake.parse(content, ChatRequest, info), info)
        else:
            call = await room.intake.completion(room.intake.parse(content, CompletionRequest, info), info)
        timeline = Timeline(room.metrics, received, len(call.request.prompt_token_ids))
        try:
            async with asyncio.timeout(call.timeout - (clock() - received)) as patience:
                watcher = asyncio.get_running_loop().create_task(self._watch(receive, patience))
                try:
                    async with self._admitted(call, timeline) as stream:
                        await (self._in_events if call.streamed else self._in_one_piece)(call, stream, timeline)
                finally:
                    watcher.cancel()
        except TimeoutError:
            if self._gone:
                raise ClientGone from None
            raise ApiError(504, f"The answer was not complete within {call.timeout:g} s.", code="timeout") from None
        except EngineError as error:
            if room.lifecycle.state == "draining":
                raise ApiError(503, "The server is shutting down.", code="engine_draining") from None
            raise from_engine(error) from None

    async def _watch(self, receive: Receive, patience: asyncio.Timeout) -> None:
        """When the client leaves, let patience end at once: waiting and working stop the same way as at a deadline."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        if not patience.expired():
            patience.reschedule(asyncio.get_running_loop().time())

    @asynccontextmanager
    async def _admitted(self, call: Call, timeline: Timeline) -> AsyncIterator[Stream]:
        """Wait for a place and start the engine. The place is free again when the engine has really stopped."""
        lifecycle = self._room.lifecycle
        try:
            slot = await lifecycle.admission.enter()
        except QueueFull as full:
            raise ApiError(429, str(full), code="queue_full", retry_after=full.retry_after) from None
        try:
            timeline.admit(clock())
            stream = lifecycle.engine.generate(call.request)
        except BaseException:
            slot.release()
            raise
        stream.on_end = slot.release
        try:
            yield stream
        finally:
            stream.cancel()  # nothing to do where the answer is complete

    async def _in_events(self, call: Call, stream: Stream, timeline: Timeline) -> None:
        wire, send = call.wire, self._send
        async for chunks in stream:
            timeline.hear(chunks, clock())
            data = wire.chunks(chunks)
            if not self._head_sent:
                await self._send_head(wire, timeline)
                data = wire.opening() + data
            if data:
                await send({"type": "http.response.body", "body": data, "more_body": True})
                self._still_there()
        await asyncio.sleep(0)  # a disconnect that came with the last chunks is told now
        self._still_there()
        closing = wire.closing(_ending(stream, timeline))
        if not self._head_sent:
            await self._send_head(wire, timeline)
            closing = wire.opening() + closing
        await send({"type": "http.response.body", "body": closing, "more_body": False})

    def _still_there(self) -> None:
        """Raises `ClientGone`. Bytes for a lost connection vanish without a word, and the rest may be ready at once."""
        if self._gone:
            raise ClientGone

    async def _send_head(self, wire: Wire, timeline: Timeline) -> None:
        """The status line leaves with the first token, so that a request that fails before it gets a proper status."""
        self._head_sent = True
        first = clock() if timeline.first is None else timeline.first
        timing = _server_timing(queue=timeline.admitted - timeline.received, prefill=first - timeline.admitted)
        headers = [*EVENT_STREAM, (b"server-timing", timing), (b"x-request-id", wire.id.encode())]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def _in_one_piece(self, call: Call, stream: Stream, timeline: Timeline) -> None:
        kept: list[ReceivedChunk] = []
        async for chunks in stream:
            timeline.hear(chunks, clock())
            kept += chunks
        ending = _ending(stream, timeline)
        body = call.wire.whole(kept, ending)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"server-timing", _server_timing(**ending.timing())),
            (b"x-request-id", call.wire.id.encode()),
        ]
        self._head_sent = True
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    async def _refuse(self, error: ApiError, scope: Scope, receive: Receive) -> None:
        """A status and a JSON document; inside a stream, an event without the final `[DONE]`."""
        if not self._head_sent:
            await error.response()(scope, receive, self._send)
            return
        event: dict[str, Any] = {"type": "http.response.body", "body": b"data: " + error.body() + b"\n\n"}
        await self._send(event)


def _ending(stream: Stream, timeline: Timeline) -> Ending:
    if stream.finish_reason in (None, "cancelled"):
        raise EngineError("the engine gave up this request.")
    return timeline.complete(stream.finish_reason, clock())


def _server_timing(**seconds: float) -> bytes:
    """The Server-Timing header's own unit is the millisecond (W3C)."""
    return ", ".join(f"{name};dur={1e3 * value:.3f}" for name, value in seconds.items()).encode()
