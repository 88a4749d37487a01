"""The child's side of the engine protocol for engines written in Python: `python -m engines.process.worker fake`.

Standard output is reserved for the protocol: whatever a library prints goes to standard error. Lines that are ready at
the same moment are sent in one write. Standard library only: this also runs in environments without our packages.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import selectors
import sys
import threading
import traceback
from typing import Any

from engines.contract.base import BadRequest, Engine, EngineError, EngineStats, EngineUnavailable
from engines.contract.protocol import (
    VERSION,
    AskStats,
    Cancel,
    Done,
    Failed,
    Generate,
    Load,
    ProtocolError,
    Ready,
    Stats,
    ToParent,
    decode_to_child,
    encode,
    encode_chunk,
)
from engines.contract.registry import engine_class
from settings_schema import from_text


class Worker:
    """Runs one engine, with requests and answers on a pair of pipes."""

    def __init__(self, out: int) -> None:
        self._out = out
        self._lines: list[bytes] = []
        self._running: dict[int, asyncio.Task[Done | Failed]] = {}
        self._loading: asyncio.Task[None] | None = None
        self._engine: Engine | None = None

    async def run(self, lines: asyncio.StreamReader) -> None:
        """Serve until standard input ends, even while the model loads."""
        try:
            while line := await lines.readline():
                try:
                    self._handle(line)
                except ProtocolError as error:
                    print(f"ignored a line: {error}", file=sys.stderr)
        finally:
            for task in self._running.values():
                task.cancel()
            if self._engine is not None:
                self._engine.close()

    def _handle(self, line: bytes) -> None:
        match decode_to_child(line):
            case Load() as load:
                self._loading = asyncio.get_running_loop().create_task(self._load(load))
            case Generate(id, _) as generate:
                task = asyncio.get_running_loop().create_task(self._answer(generate))
                self._running[id] = task
                task.add_done_callback(lambda task: self._finish(id, task))
            case Cancel(id):
                if id in self._running:
                    self._running[id].cancel()
            case AskStats():
                self._send(encode(Stats(self._stats())))

    async def _load(self, load: Load) -> None:
        try:
            if load.version != VERSION:
                raise EngineUnavailable(f"this worker speaks protocol {VERSION}, the server {load.version}.")
            kind = engine_class(load.engine)
            engine = kind(load.model, from_text(kind.Options, load.options))
            info = await asyncio.get_running_loop().run_in_executor(None, engine.load)
        except Exception as error:
            self._send(encode(_failed(None, error)))
        else:
            self._engine = engine
            self._send(encode(Ready(info)))

    async def _answer(self, generate: Generate) -> Done | Failed:
        id = generate.id
        try:
            if self._loading is not None and not self._loading.done():
                await asyncio.shield(self._loading)
            if self._engine is None:
                raise EngineUnavailable("the engine is not loaded.")
            chunks: Any = self._engine.generate(generate.request)
            async with contextlib.aclosing(chunks):
                async for chunk in chunks:
                    self._send(encode_chunk(id, chunk))
                    if chunk.finish_reason is not None:
                        return Done(id, chunk.finish_reason)
            raise EngineError("the engine ended its answer without a finish reason.")
        except Exception as error:
            return _failed(id, error)

    def _finish(self, id: int, task: asyncio.Task[Done | Failed]) -> None:
        """Send the last line of a request. Done here because a task cancelled before its first step runs no code."""
        del self._running[id]
        last: ToParent = Done(id, "cancelled") if task.cancelled() else task.result()
        self._send(encode(last))

    def _stats(self) -> EngineStats:
        stats = EngineStats() if self._engine is None else self._engine.stats()
        if stats.memory_bytes is not None:
            return stats
        return EngineStats(resident_bytes(), stats.device_memory_bytes, stats.kv_cache_usage)

    def _send(self, line: bytes) -> None:
        if not self._lines:
            asyncio.get_running_loop().call_soon(self._flush)
        self._lines.append(line)

    def _flush(self) -> None:
        # A blocking write bounds what accumulates here; the parent never stops reading.
        data, self._lines = memoryview(b"".join(self._lines)), []
        while data:
            data = data[os.write(self._out, data) :]


def resident_bytes() -> int:
    """Resident memory of this process now; its peak where the system reports only that."""
    try:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * resource.getpagesize()
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _failed(id: int | None, error: Exception) -> Failed:
    if isinstance(error, EngineError):
        return Failed(id, error.kind, str(error))
    traceback.print_exception(error)  # for the server's log; the client gets one sentence
    if isinstance(error, ValueError) and id is None:
        return Failed(id, BadRequest.kind, str(error))
    return Failed(id, EngineError.kind, f"the engine failed ({type(error).__name__}).")


async def _serve(out: int) -> None:
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader(limit=64 * 1024 * 1024)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    await Worker(out).run(lines)


def main() -> None:
    out = os.dup(1)
    os.dup2(2, 1)  # a library that prints must not break the protocol
    threading.current_thread().name = "engine-worker"
    # select() waits in microseconds where epoll rounds up to milliseconds: the fake engine's delays depend on it.
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(_serve(out))
    except (KeyboardInterrupt, BrokenPipeError):
        pass
    finally:
        sys.stderr.flush()
        os._exit(0)  # a thread may still be computing an abandoned answer


if __name__ == "__main__":
    main()
