"""One life of an engine's child process: its pipes, and the answers that it is giving.

The bytes of its pipes are handled here, on the event loop that started the process; `engines.process.child` decides
when a process is started, watched and replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, cast

import msgspec

from engines.contract.base import (
    EngineCrashed,
    EngineError,
    EngineInfo,
    EngineStats,
    EngineUnavailable,
    FinishReason,
    GenerateRequest,
    TokenLogprob,
)
from engines.contract.protocol import (
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

PIPE_BYTES = 1024 * 1024


class HeardChunk(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="chunk"):
    """A `Chunk` on the server's side, read from its line's bytes."""

    id: int  # of the request
    text: str
    tokens: int
    logprobs: tuple[TokenLogprob, ...] = ()


class _HeardDone(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="done"):
    id: int
    finish_reason: FinishReason


# What nearly all lines are, once or more per token: read by the dozen, at a tenth of what reading any message costs.
_frequent = msgspec.json.Decoder(HeardChunk | _HeardDone)


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
        self._pending: list[HeardChunk] = []
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False
        self._error: EngineError | None = None
        self.finish_reason: FinishReason | None = None
        self.on_end: Callable[[], None] | None = None

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> list[HeardChunk]:
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

    def _feed(self, chunk: HeardChunk) -> None:
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


class _Output(asyncio.Protocol):
    """The child's standard output."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def data_received(self, data: bytes) -> None:
        self._process.hear(data)


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
        self._output: asyncio.ReadTransport | None = None

    async def start(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Raises `OSError` when the program cannot be started."""
        loop = asyncio.get_running_loop()
        # A pipe of our own: what a subprocess's transport reads waits for one more turn of the loop.
        ours, theirs = (os.fdopen(end, mode, buffering=0) for end, mode in zip(os.pipe(), ("rb", "wb"), strict=True))
        with theirs:
            _widen(theirs)
            self._output, _ = await loop.connect_read_pipe(lambda: _Output(self), ours)
            try:
                # A session of its own: Ctrl-C in the terminal must let the server drain before the engine goes.
                await loop.subprocess_exec(
                    lambda: self, *command, stdout=theirs, env=environment, start_new_session=True
                )
            except BaseException:
                self._output.close()
                raise

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
        """Standard error."""
        for text in data.decode(errors="replace").splitlines():
            self._log.info("%s", text)

    def hear(self, data: bytes) -> None:
        """Standard output."""
        self.heard_at = time.monotonic()
        data = self._tail + data
        end = data.rfind(b"\n") + 1
        lines, self._tail = data[:end], data[end:]
        try:
            try:
                answers = _frequent.decode_lines(lines)
            except msgspec.DecodeError:  # another message among them, or none: one by one they are told apart
                for line in lines.split(b"\n"):
                    if line:
                        self._hear_line(line)
            else:
                for answer in answers:
                    self._hear_answer(answer)
            if len(self._tail) > MAX_LINE_BYTES:
                raise ProtocolError("a line without an end")
        except ProtocolError as error:
            self._log.error("%s", error)  # the line may hold somebody's answer: it is not for the other clients
            self.kill("it broke the protocol")

    def _hear_answer(self, answer: HeardChunk | _HeardDone) -> None:
        if isinstance(answer, HeardChunk):
            if (stream := self._streams.get(answer.id)) is not None:
                stream._feed(answer)
        elif (stream := self._streams.pop(answer.id, None)) is not None:
            stream._end(answer.finish_reason)

    def _hear_line(self, line: bytes) -> None:
        try:
            answer = _frequent.decode(line)
        except msgspec.DecodeError:
            pass
        else:
            self._hear_answer(answer)
            return
        match message := decode_to_parent(line, msgspec.json.decode):
            case Failed(id, _, _) if id is not None:
                if (stream := self._streams.pop(id, None)) is not None:
                    stream._end(None, message.as_error())
            case Failed():
                if not self.loaded.done():
                    self.loaded.set_exception(EngineUnavailable(message.message))
            case Stats(stats):
                self.stats, self.asked_at = stats, None
            case ChunkReady() | Done():
                raise ProtocolError(f"a line with fields of the wrong type: {line[:200]!r}")
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
        for transport in (self._transport, self._output):
            if transport is not None:
                transport.close()


def _widen(pipe: IO[bytes]) -> None:
    """An engine that floods shall not wait for each of our turns."""
    with contextlib.suppress(ImportError, AttributeError, OSError):  # elsewhere than under Linux, or beyond its limit
        import fcntl

        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)


def _ending(code: int | None) -> str:
    if code is None:
        return "ended"
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"exited with code {code}"
