"""An engine in a child process: start it, watch it, send it work, hear its chunks, start it again when it dies.

A computing engine never holds the server's interpreter lock, a crash takes no server down, and an engine whose
libraries clash with ours runs on an interpreter of its own. Everything here runs on one asyncio loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
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
    Model,
)
from engines.protocol import (
    MAX_LINE_BYTES,
    VERSION,
    AskStats,
    Cancel,
    ChunkReady,
    Done,
    Failed,
    Generate,
    Load,
    ProtocolError,
    Ready,
    Stats,
    ToChild,
    decode_to_parent,
    encode,
)

ROOT = str(Path(__file__).resolve().parent.parent)  # where the child finds `engines`
State = Literal["loading", "ready", "restarting", "failed", "stopped"]


@dataclass(frozen=True, slots=True)
class Watch:
    """How closely a child is watched. Seconds."""

    heartbeat: float = 1.0  # between two questions
    hung_after: float = 60.0  # silence, with a question open, after which it is killed
    restart_first: float = 0.5  # wait before the first restart; doubles up to `restart_most`
    restart_most: float = 30.0
    stop_grace: float = 5.0  # for a child to end by itself once its input has ended


class Stream:
    """The answer to one request: iterate for lists of the chunks that are ready, at least one at a time.

    Ends after the child's last word; raises an `EngineError` when the request failed. A consumer that leaves early must
    `cancel()`: the engine goes on otherwise. `on_end` is called once, when the engine is done with the request, whether
    or not anybody still iterates.
    """

    __slots__ = ("_child", "_ended", "_error", "_id", "_pending", "_waiter", "finish_reason", "on_end")

    def __init__(self, child: _Process, id: int) -> None:
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


class _Process(asyncio.SubprocessProtocol):
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
            self.kill(f"it broke the protocol: {error}")

    def _hear(self, line: bytes) -> None:
        message = decode_to_parent(line, msgspec.json.decode)
        if type(message) is ChunkReady:  # once per token, so first
            stream = self._streams.get(message.id)
            if stream is not None:
                stream._feed(message.chunk)
            return
        match message:
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


class ChildEngine:
    """An engine by name, kept alive. `start()` once, `generate()` many times, `stop()` at the end.

    `generate` never waits: how many requests may run at a time is for the caller to keep (`info.max_concurrency`).
    """

    def __init__(
        self,
        name: str,
        model: Model | None,
        options: Mapping[str, str],
        command: tuple[str, ...] | None = None,
        watch: Watch = Watch(),
    ) -> None:
        self.name = name
        self._state: State = "stopped"
        self.info: EngineInfo | None = None
        self.restarts = 0
        self._load = Load(name, model, dict(options))
        self._command = command or (sys.executable, "-m", "engines.worker", name)
        self._watch = watch
        self._ids = itertools.count(1)
        self._process: _Process | None = None
        self._keeper: asyncio.Task[None] | None = None

    @property
    def state(self) -> State:
        if self._state == "ready" and self._process is not None and self._process.exited.done():
            return "restarting"  # it died a moment ago, and whoever keeps it alive has not had its turn yet
        return self._state

    @property
    def pid(self) -> int | None:
        """The child's process id, while it lives."""
        return self._process.pid if self._process is not None else None

    async def start(self) -> EngineInfo:
        """Start the child and load the model. Raises `EngineUnavailable`."""
        self._state = "loading"
        try:
            info = await self._launch()
        except BaseException:
            self._state = "failed"
            raise
        self._keeper = asyncio.get_running_loop().create_task(self._keep_alive(), name=f"keep {self.name} alive")
        return info

    def generate(self, request: GenerateRequest) -> Stream:
        """Raises `EngineUnavailable` while the engine is not ready."""
        if self.state != "ready" or self._process is None:
            raise EngineUnavailable(f"the engine is {self.state}; try again shortly.")
        return self._process.open_stream(next(self._ids), request)

    async def stats(self) -> EngineStats:
        """As of the last heartbeat."""
        return self._process.stats if self._process is not None else EngineStats()

    async def stop(self) -> None:
        """End the child: politely, then firmly. Running requests fail."""
        self._state = "stopped"
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
        await self._end_process()

    async def _launch(self) -> EngineInfo:
        process = self._process = _Process(self.name)
        path = os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH")]))
        try:
            # A session of its own: Ctrl-C in the terminal must let the server drain before the engine goes.
            await asyncio.get_running_loop().subprocess_exec(
                lambda: process, *self._command, env=os.environ | {"PYTHONPATH": path}, start_new_session=True
            )
        except OSError as error:
            raise EngineUnavailable(f"cannot start {self._command[0]}: {error.strerror}.") from error
        process.send(self._load)
        try:
            self.info = await asyncio.shield(process.loaded)
        except BaseException:
            await self._end_process()
            raise
        self._state = "ready"
        return self.info

    async def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is None or process.pid is None:
            return
        process.end_input()
        try:
            async with asyncio.timeout(self._watch.stop_grace):
                await asyncio.shield(process.exited)
        except TimeoutError:
            process.kill("it did not stop when asked")
            await process.exited
        finally:
            process.close()

    async def _keep_alive(self) -> None:
        wait = self._watch.restart_first
        while True:
            ready_at = time.monotonic()
            await self._watch_until_it_ends()
            if time.monotonic() - ready_at > 2 * self._watch.restart_most:
                wait = self._watch.restart_first  # it had been well for long: forget the crashes before
            restarted = False
            while not restarted:
                self._state = "restarting"
                await asyncio.sleep(wait)
                wait = min(2 * wait, self._watch.restart_most)
                self.restarts += 1
                restarted = await self._try_again()

    async def _try_again(self) -> bool:
        try:
            await self._launch()
        except EngineUnavailable:
            return False
        return True

    async def _watch_until_it_ends(self) -> None:
        process = self._process
        assert process is not None
        while not process.exited.done():
            await asyncio.wait([process.exited], timeout=self._watch.heartbeat)
            now = time.monotonic()
            if process.asked_at is None:
                process.asked_at = now
                process.send(AskStats())
            elif now - max(process.asked_at, process.heard_at) > self._watch.hung_after:
                process.kill(f"it was silent for {self._watch.hung_after:g} s")
                await process.exited
        process.close()


def _ending(code: int | None) -> str:
    if code is None:
        return "ended"
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"exited with code {code}"
