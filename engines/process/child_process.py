"""One child process of an engine: its pipes and open answers. `engines.process.supervisor` decides when to replace
it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import IO, cast

import msgspec

from engines.contract import protocol
from engines.contract.base import EngineInfo, EngineStats, FinishReason, GenerateRequest, Usage
from engines.contract.errors import EngineCrashed, EngineUnavailable, FatalError
from engines.process.stream import ReceivedChunk, Stream
from engines.process.tree import ProcessTree

PIPE_BYTES = 1024 * 1024
LAST_LINES = 20  # last lines of a dead engine's standard error, for the server's log
KILLED_WITHIN = 30.0  # seconds; the kernel takes long if a process held much memory of a GPU
KILLED_CHECK = 0.02  # seconds
LAST_OUTPUT = 1.0  # seconds that a dead process's pipes may stay open, for example held by a process outside its group


class _ReceivedDone(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="done"):
    id: int
    finish_reason: FinishReason
    usage: Usage | None = None


UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
# Nearly all lines are one of these, at least one per token: decoded together, at a tenth of the general cost.
_frequent = msgspec.json.Decoder(ReceivedChunk | _ReceivedDone)


class _Output(asyncio.Protocol):
    """The child's standard output."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def data_received(self, data: bytes) -> None:
        self._process.receive(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._process.part_ended("output")


class Process(asyncio.SubprocessProtocol):
    """The pipes, the open streams, and when the process last wrote anything."""

    def __init__(self, name: str) -> None:
        loop = asyncio.get_running_loop()
        self.loaded: asyncio.Future[EngineInfo] = loop.create_future()
        self.exited: asyncio.Future[int] = loop.create_future()
        self.stats = EngineStats()
        self.asked_at: float | None = None  # when the open heartbeat was sent
        self.last_output_at = time.monotonic()
        self.killed_because: str | None = None
        self.on_exit: Callable[[], None] | None = None  # called once, before its open streams fail
        self.tree: ProcessTree | None = None
        self._stopping = False
        self._parts = {"process", "output", "errors"}  # parts that have not ended yet
        self._last_lines: deque[str] = deque(maxlen=LAST_LINES)
        self._streams: dict[int, Stream] = {}
        self._tail = bytearray()  # a line whose end has not arrived yet
        self._log = logging.getLogger(f"enginebench.engine.{name}")
        self._transport: asyncio.SubprocessTransport | None = None
        self._output: asyncio.ReadTransport | None = None

    async def start(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start the program. Raises `OSError` if that fails."""
        loop = asyncio.get_running_loop()
        # Our own pipe: the subprocess transport would deliver its data one turn of the loop later.
        ours, theirs = pipe_of(loop)
        with theirs:
            _widen(theirs)
            self._output, _ = await loop.connect_read_pipe(lambda: _Output(self), ours)
            try:
                # A separate session: after Ctrl-C in the terminal, the server must drain before the engine ends.
                await loop.subprocess_exec(
                    lambda: self, *command, stdout=theirs, env=environment, start_new_session=True
                )
            except BaseException:
                self._output.close()
                raise

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)
        self.tree = ProcessTree(self._transport.get_pid())  # the leader of a group, as it has a session of its own

    @property
    def pid(self) -> int | None:
        return self._transport.get_pid() if self._transport is not None else None

    @property
    def running(self) -> int:
        """Return the number of requests that the process has not finished."""
        return len(self._streams)

    def send(self, message: protocol.ToChild) -> None:
        pipe = self._transport.get_pipe_transport(0) if self._transport is not None else None
        if pipe is not None and not pipe.is_closing():
            cast(asyncio.WriteTransport, pipe).write(protocol.encode(message, msgspec.json.encode))

    def open_stream(self, id: int, request: GenerateRequest) -> Stream:
        stream = self._streams[id] = Stream(lambda: self.send(protocol.Cancel(id)))
        self.send(protocol.Generate(id, request))
        return stream

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Take output on standard error."""
        for text in data.decode(errors="replace").splitlines():
            self._last_lines.append(text)
            self._log.info("%s", text)

    def receive(self, data: bytes) -> None:
        """Take output on standard output."""
        self.last_output_at = time.monotonic()
        lines = b""
        if end := data.rfind(b"\n") + 1:
            lines = bytes(self._tail) + data[:end]
            self._tail.clear()
        self._tail += data[end:]
        try:
            try:
                answers = _frequent.decode_lines(lines)
            except UNREADABLE:  # another kind of message among them: decode one by one
                for line in lines.split(b"\n"):
                    if line:
                        self._receive_line(line)
            else:
                for answer in answers:
                    self._deliver(answer)
            if len(self._tail) > protocol.MAX_LINE_BYTES:
                raise protocol.ProtocolError("a line without an end")
        except protocol.ProtocolError as error:
            self._log.error("%s", error)  # in the log only: the line may hold the answer to another client's request
            self.kill("it violated the protocol")

    def _deliver(self, answer: ReceivedChunk | _ReceivedDone) -> None:
        if isinstance(answer, ReceivedChunk):
            if (stream := self._streams.get(answer.id)) is not None:
                answer.read_at = self.last_output_at
                stream.feed(answer)
        elif (stream := self._streams.pop(answer.id, None)) is not None:
            stream.end(answer.finish_reason, usage=answer.usage)

    def _receive_line(self, line: bytes) -> None:
        try:
            answer = _frequent.decode(line)
        except UNREADABLE:
            pass
        else:
            self._deliver(answer)
            return
        match message := protocol.decode_to_parent(line):
            case protocol.Failed(id, _, _) if id is not None:
                error = message.as_error()
                if (stream := self._streams.pop(id, None)) is not None:
                    stream.end(None, error)
                if isinstance(error, FatalError):
                    self.kill(f"it cannot continue: {error}")
            case protocol.Failed():
                if not self.loaded.done():
                    self.loaded.set_exception(EngineUnavailable(message.message))
            case protocol.Stats(stats):
                self.stats, self.asked_at = stats, None
            case protocol.ChunkReady() | protocol.Done():
                raise protocol.ProtocolError(f"a line with fields of the wrong type: {line[:200]!r}")
            case protocol.Ready(info, version):
                if version != protocol.VERSION:
                    self.kill(f"it implements protocol {version}, this server {protocol.VERSION}")
                elif not self.loaded.done():
                    self.loaded.set_result(info)

    def process_exited(self) -> None:
        if self.tree is not None:
            self.tree.kill()  # processes that it started would keep their memory
        asyncio.get_running_loop().call_later(LAST_OUTPUT, self._end)
        self.part_ended("process")

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 2:
            self.part_ended("errors")

    def part_ended(self, part: str) -> None:
        """Note an end: under asyncio, a process's exit is often seen before its last output has been read."""
        self._parts.discard(part)
        if not self._parts:
            self._end()

    def _end(self) -> None:
        if self.exited.done():
            return
        code = self._transport.get_returncode() if self._transport is not None else None
        reason = self.killed_because or f"it {_ending(code)}"
        if not self._stopping:
            last = "; its last output:\n" + "\n".join(self._last_lines) if self._last_lines else ""
            self._log.error("the engine's process ended: %s%s", reason, last)
        if not self.loaded.done():
            self.loaded.set_exception(EngineUnavailable(f"the engine's process ended while loading: {reason}."))
        self.loaded.exception()  # marks it as retrieved
        self.exited.set_result(-1 if code is None else code)
        if self.on_exit is not None:
            self.on_exit()
        for stream in self._streams.values():
            stream.end(None, EngineCrashed(f"the engine's process ended while this request was running: {reason}."))
        self._streams.clear()

    def kill(self, because: str) -> None:
        """End the process and all processes under it."""
        self.killed_because = because
        if self.tree is not None:
            self.tree.kill()

    async def until_gone(self) -> None:
        """Wait until all killed processes have ended: until then the next engine would lack the memory they hold."""
        deadline = time.monotonic() + KILLED_WITHIN
        while self.tree is not None and await asyncio.to_thread(self.tree.alive):  # may read every process's group
            if time.monotonic() > deadline:
                self._log.warning("a process of the engine still runs %g s after it was killed", KILLED_WITHIN)
                return
            await asyncio.sleep(KILLED_CHECK)

    def end_input(self) -> None:
        self._stopping = True
        pipe = self._transport.get_pipe_transport(0) if self._transport is not None else None
        if pipe is not None:
            pipe.close()

    def close(self) -> None:
        for transport in (self._transport, self._output):
            if transport is not None:
                transport.close()


def pipe_of(loop: asyncio.AbstractEventLoop) -> tuple[IO[bytes], IO[bytes]]:
    """Return a pipe's end for `connect_read_pipe` of this loop, and the other end."""
    read, write = os.pipe()
    # uvloop closes the descriptor itself and the file object after it, when the number may be another thread's already
    # (https://github.com/MagicStack/uvloop/issues/763). asyncio's own loops close only the file object.
    closefd = isinstance(loop, asyncio.BaseEventLoop)
    return os.fdopen(read, "rb", buffering=0, closefd=closefd), os.fdopen(write, "wb", buffering=0)


def _widen(pipe: IO[bytes]) -> None:
    """Enlarge a pipe, so that an engine that writes much need not wait for each turn of the loop."""
    with contextlib.suppress(ImportError, AttributeError, OSError):  # not Linux, or above its limit
        import fcntl

        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)


def _ending(code: int | None) -> str:
    if code is None:
        return "ended"
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"  # real-time signals
        return f"was killed by {name}"
    return f"exited with code {code}"
