"""The child's side of the protocol in Python: `python -m engines.process.worker engines.fake.engine:FakeEngine`.

Standard output is reserved for the protocol: output of libraries goes to standard error. Lines that are ready at the
same moment are sent in one write. Standard library only: this also runs in environments without our packages.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
import select
import selectors
import signal
import sys
import threading
import time
import traceback
from dataclasses import replace
from typing import Any

from enginebench.settings.schema import from_text
from enginebench.settings.system import raise_descriptor_limit
from engines.contract import protocol
from engines.contract.base import Engine, EngineStats
from engines.contract.errors import (
    OUT_OF_MEMORY,
    BadRequest,
    EngineError,
    EngineOverloaded,
    EngineUnavailable,
    FatalError,
    RemoteFailed,
    first_line,
    is_sticky,
    without_folders,
)
from engines.contract.registry import class_at

MAX_DESCRIPTORS = 65_536  # per engine: some libraries close all possible descriptors


class Worker:
    """Run one engine, with requests and answers on a pair of pipes."""

    def __init__(self, kind: type[Engine], out: int, began: float) -> None:
        """`began` is when this process began to import the engine, on the monotonic clock."""
        self._kind = kind
        self._began = began
        self._out = out
        self._lines: list[bytes] = []
        self._running: dict[int, asyncio.Task[protocol.Done | protocol.Failed]] = {}
        self._loading: asyncio.Task[None] | None = None
        self._engine: Engine | None = None

    async def run(self, lines: asyncio.StreamReader) -> None:
        """Serve until standard input ends, even while the model loads."""
        try:
            while line := await lines.readline():
                try:
                    self._handle(line)
                except protocol.ProtocolError as error:
                    print(f"ignored a line: {error}", file=sys.stderr)
        finally:
            for task in self._running.values():
                task.cancel()
            if self._engine is not None:
                self._engine.close()

    def _handle(self, line: bytes) -> None:
        match protocol.decode_to_child(line):
            case protocol.Load() as load:
                self._loading = asyncio.get_running_loop().create_task(self._load(load))
            case protocol.Generate(id, _) as generate:
                task = asyncio.get_running_loop().create_task(self._answer(generate))
                self._running[id] = task
                task.add_done_callback(lambda task: self._finish(id, task))
            case protocol.Cancel(id):
                if id in self._running:
                    self._running[id].cancel()
            case protocol.AskStats():
                self._send(protocol.encode(protocol.Stats(self._stats())))

    async def _load(self, load: protocol.Load) -> None:
        try:
            if load.version != protocol.VERSION:
                raise EngineUnavailable(
                    f"this worker implements protocol {protocol.VERSION}, the server {load.version}."
                )
            engine = self._kind(load.model, from_text(self._kind.Options, load.options))
            engine.end_phase("imports", self._began)
            if engine.loads_on == "main":
                info: Any = engine.load()
                if inspect.isawaitable(info):
                    info = await info
            else:
                info = await asyncio.get_running_loop().run_in_executor(None, engine.load)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # a panic of a library in Rust is not an `Exception`
            self._send(protocol.encode(_failed(None, error)))
        else:
            self._engine = engine
            engine.end_phase("load")
            self._send(protocol.encode(protocol.Ready(replace(info, startup=engine.startup))))

    async def _answer(self, generate: protocol.Generate) -> protocol.Done | protocol.Failed:
        id = generate.id
        try:
            if self._loading is not None and not self._loading.done():
                await asyncio.shield(self._loading)
            if self._engine is None:
                raise EngineUnavailable("the engine is not loaded.")
            chunks: Any = self._engine.generate(generate.request)
            async with contextlib.aclosing(chunks):
                async for chunk in chunks:
                    self._send(protocol.encode_chunk(id, chunk))
                    if chunk.finish_reason is not None:
                        return protocol.Done(id, chunk.finish_reason, chunk.usage)
            raise EngineError("the engine ended its answer without a finish reason.")
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            return _failed(id, error)

    def _finish(self, id: int, task: asyncio.Task[protocol.Done | protocol.Failed]) -> None:
        """Send the last line of a request: a task cancelled before its first step runs no code that could."""
        del self._running[id]
        last: protocol.ToParent = protocol.Done(id, "cancelled") if task.cancelled() else task.result()
        self._send(protocol.encode(last))

    def _stats(self) -> EngineStats:
        if self._engine is None:
            return EngineStats()
        try:
            return self._engine.stats()
        except Exception as error:  # as after a CUDA error; the heartbeat is still answered
            traceback.print_exception(error)
            return EngineStats()

    def _send(self, line: bytes) -> None:
        if not self._lines:
            asyncio.get_running_loop().call_soon(self._flush)
        self._lines.append(line)

    def _flush(self) -> None:
        # A blocking write limits the lines that accumulate here; the parent never stops reading.
        data, self._lines = memoryview(b"".join(self._lines)), []
        while data:
            data = data[os.write(self._out, data) :]


def _failed(id: int | None, error: BaseException) -> protocol.Failed:
    if id is not None and not isinstance(error, FatalError) and is_sticky(error):
        traceback.print_exception(error)
        return protocol.Failed(
            id, FatalError.kind, without_folders(f"the GPU failed ({first_line(error).rstrip('.')}).")
        )
    if isinstance(error, EngineOverloaded):
        return protocol.Failed(id, error.kind, str(error), error.retry_after)
    if isinstance(error, EngineError):
        hidden = id is not None and not isinstance(error, BadRequest | RemoteFailed)  # it may quote a library's error
        return protocol.Failed(id, error.kind, without_folders(str(error)) if hidden else str(error))
    traceback.print_exception(error)  # for the server's log; the client gets one sentence
    if OUT_OF_MEMORY in str(error):
        return protocol.Failed(id, EngineError.kind, without_folders(f"the GPU's memory ran out: {first_line(error)}"))
    if isinstance(error, ValueError) and id is None:
        return protocol.Failed(id, BadRequest.kind, str(error))
    return protocol.Failed(id, EngineError.kind, f"the engine failed ({type(error).__name__}).")


def _selector() -> selectors.BaseSelector:
    """Return a selector that waits in microseconds, on which the fake engine's delays depend."""
    if not hasattr(selectors, "EpollSelector"):
        return selectors.DefaultSelector()

    class Precise(selectors.EpollSelector):
        def select(self, timeout: float | None = None) -> Any:
            if timeout is None or timeout <= 0:
                return super().select(timeout)
            select.select([self.fileno()], [], [], timeout)  # epoll itself rounds up to milliseconds
            return super().select(0)

    return Precise()


async def _serve(kind: type[Engine], out: int, began: float) -> None:
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader(limit=protocol.MAX_LINE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    await Worker(kind, out, began).run(lines)


def main() -> None:
    began = time.monotonic()
    target, *more = sys.argv[1:]
    out = os.dup(1)
    os.dup2(2, 1)  # a library that prints must not break the protocol
    if more == ["--why-not-here"]:
        os.write(out, json.dumps(class_at(target).why_not_here()).encode())
        return
    threading.current_thread().name = "engine-worker"
    raise_descriptor_limit(MAX_DESCRIPTORS)
    loop = asyncio.SelectorEventLoop(_selector())
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(_serve(class_at(target), out, began))
    except (KeyboardInterrupt, BrokenPipeError):
        pass
    finally:
        sys.stderr.flush()
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)  # with all processes that the library has started
        os._exit(0)  # a thread may still be computing an abandoned answer


if __name__ == "__main__":
    main()
