"""One life of an engine's child process: its pipes, and the answers that it is giving.

The bytes of both pipes are handled here, on the event loop that started the process; `engines.child` decides when a
process is started, watched and replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast

import msgspec

from engines.base import (
    Chunk,
    EngineCrashed,
    EngineError,
    EngineInfo,
    EngineStats,
    EngineUnavailable,
    FinishReason,
    GenerateRequest,
)
from engines.protocol import (
    MAX_LINE_BYTES,
    VERSION,
    Cancel,
    ChunkReady,
    Done,
    Failed,
    Generate,
    ProtocolError,
    Ready,
    Stats,
    ToChild,
    decode_to_parent,
    encode,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _HeardChunk(Chunk):
    """A chunk as its line has it. msgspec fills it from the bytes, at half the cost of reading a dictionary first."""

    type: Literal["chunk"]
    id: int


_read_chunk = msgspec.json.Decoder(_HeardChunk).decode


class Stream:
    """The answer to one request: iterate for lists of the chunks that are ready, at least one at a time.

    Ends after the child's last word; raises an `EngineError` when the request failed. A consumer that leaves early must
    `cancel()`: the engine goes on otherwise. `on_end` is called once, when the engine is done with the request, whether
    or not anybody still iterates.
    """

    __slots__ = ("_child", "_ended", "_error", "_id", "_pending", "_waiter", "finish_reason", "on_end")

    def __init__(self, child: Process, id: int) -> None:
        self._child = child
        self._id = id
        self._pending: list[Chunk] = []
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False
        self._error: EngineError | None = None
        self.finish_reason: FinishReason | None = None
        self.on_end: Callable[[], None] | None = None

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> list[Chunk]:
        while not self._pending:
            if self._error is not None:
                raise self._error
            if self._ended:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        ready, self._pending = self._pending, []
        return ready

    def cancel(self) -> None:
        """Ask the engine to stop. The stream ends, with `finish_reason` "cancelled", when it really has."""
        if not self._ended:
            self._child.send(Cancel(self._id))

    async def stopped(self) -> None:
        """Wait until the engine is done with this request, dropping what it still says."""
        with contextlib.suppress(EngineError):
            async for _ in self:
                pass

    def _feed(self, chunk: Chunk) -> None:
        self._pending.append(chunk)
        self._wake()

    def _end(self, finish_reason: FinishReason | None, error: EngineError | None = None) -> None:
        self._ended, self.finish_reason, self._error = True, finish_reason, error
        if self.on_end is not None:
            self.on_end()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Process(asyncio.SubprocessProtocol):
    """One life of the child: its pipes, the streams it is answering, the moment it was last heard."""

    def __init__(self, name: str) -> None:
        loop = asyncio.get_running_loop()
        self.loaded: asyncio.Future[EngineInfo] = loop.create_future()
        self.exited: asyncio.Future[int] = loop.create_future()
        self.stats = EngineStats()
        self.asked_at: float | None = None  # an unanswered question
        self.heard_at = time.monotonic()
        self.killed_because: str | None = None
        self._streams: dict[int, Stream] = {}
        self._tail = b""
        self._log = logging.getLogger(f"enginebench.engine.{name}")
        self._transport: asyncio.SubprocessTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)

    @property
    def pid(self) -> int | None:
        return self._transport.get_pid() if self._transport is not None else None

    def send(self, message: ToChild) -> None:
        pipe = self._transport.get_pipe_transport(0) if self._transport is not None else None
        if pipe is not None and not pipe.is_closing():
            cast(asyncio.WriteTransport, pipe).write(encode(message))

    def open_stream(self, id: int, request: GenerateRequest) -> Stream:
        stream = self._streams[id] = Stream(self, id)
        self.send(Generate(id, request))
        return stream

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            for text in data.decode(errors="replace").splitlines():
                self._log.info("%s", text)
            return
        self.heard_at = time.monotonic()
        *lines, self._tail = (self._tail + data).split(b"\n")
        try:
            for line in lines:
                self._hear(line)
            if len(self._tail) > MAX_LINE_BYTES:
                raise ProtocolError("a line without an end")
        except ProtocolError as error:
            self._log.error("%s", error)  # the line may hold somebody's answer: it is not for the other clients
            self.kill("it broke the protocol")

    def _hear(self, line: bytes) -> None:
        try:
            chunk = _read_chunk(line)  # once per token, so first
        except msgspec.DecodeError:
            pass  # another message, or none: below they are told apart
        else:
            if (stream := self._streams.get(chunk.id)) is not None:
                stream._feed(chunk)
            return
        match message := decode_to_parent(line, msgspec.json.decode):
            case Done(id, finish_reason):
                if (stream := self._streams.pop(id, None)) is not None:
                    stream._end(finish_reason)
            case Failed(id, _, _) if id is not None:
                if (stream := self._streams.pop(id, None)) is not None:
                    stream._end(None, message.as_error())
            case Failed():
                if not self.loaded.done():
                    self.loaded.set_exception(EngineUnavailable(message.message))
            case Stats(stats):
                self.stats, self.asked_at = stats, None
            case ChunkReady():
                raise ProtocolError(f"a chunk with fields of the wrong type: {line[:200]!r}")
            case Ready(info, version):
                if version != VERSION:
                    self.kill(f"it speaks protocol {version}, this server {VERSION}")
                elif not self.loaded.done():
                    self.loaded.set_result(info)

    def process_exited(self) -> None:
        code = self._transport.get_returncode() if self._transport is not None else None
        reason = self.killed_because or f"it {_ending(code)}"
        if not self.loaded.done():
            self.loaded.set_exception(EngineUnavailable(f"the engine's process ended while loading: {reason}."))
        self.loaded.exception()  # seen, also where nobody waited for it
        for stream in self._streams.values():
            stream._end(None, EngineCrashed(f"the engine's process ended while this request was running: {reason}."))
        self._streams.clear()
        if not self.exited.done():
            self.exited.set_result(-1 if code is None else code)

    def kill(self, because: str) -> None:
        self.killed_because = because
        self._log.error("killing the engine: %s", because)
        with contextlib.suppress(ProcessLookupError):
            if self._transport is not None:
                self._transport.kill()

    def end_input(self) -> None:
        pipe = self._transport.get_pipe_transport(0) if self._transport is not None else None
        if pipe is not None:
            pipe.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def _ending(code: int | None) -> str:
    if code is None:
        return "ended"
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"exited with code {code}"
