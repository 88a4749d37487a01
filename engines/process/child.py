"""An engine in a child process: started, supervised, given requests, and restarted when it ends.

A computing engine never holds the server's interpreter lock, its crash does not end the server, and an engine whose
libraries conflict with ours runs on an interpreter of its own. Everything here runs on one asyncio loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from engines.contract.base import EngineInfo, EngineStats, EngineUnavailable, GenerateRequest, Model
from engines.contract.protocol import AskStats, Load
from engines.process.process import Process
from engines.process.stream import Stream
from engines.process.watch import Watch

ROOT = str(Path(__file__).resolve().parents[2])  # where the child finds `engines`
State = Literal["loading", "ready", "restarting", "failed", "stopped"]


class ChildEngine:
    """An engine that is restarted when it ends. `start()` once, `generate()` many times, `stop()` at the end.

    `generate` never waits: the caller keeps to `info.max_concurrency` requests at a time.
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
        self.on_restart: Callable[[EngineInfo], None] | None = None  # called when a new child is ready
        self._load = Load(name, model, dict(options))
        self._command = command or (sys.executable, "-m", "engines.process.worker", name)
        self._watch = watch
        self._ids = itertools.count(1)
        self._process: Process | None = None
        self._keeper: asyncio.Task[None] | None = None

    @property
    def state(self) -> State:
        if self._state == "ready" and self._process is not None and self._process.exited.done():
            return "restarting"  # it ended a moment ago; the supervising task has not run yet
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
        """End the child: by ending its input, then by a kill. Running requests fail."""
        self._state = "stopped"
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
        await self._end_process()

    async def _launch(self) -> EngineInfo:
        process = self._process = Process(self.name)
        path = os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH")]))
        try:
            await process.start(self._command, os.environ | {"PYTHONPATH": path})
        except OSError as error:
            raise EngineUnavailable(f"cannot start {self._command[0]}: {error.strerror}.") from error
        process.send(self._load)
        try:
            async with asyncio.timeout(self._watch.load_timeout):
                self.info = await asyncio.shield(process.loaded)
        except TimeoutError:
            await self._end_process()
            raise EngineUnavailable(
                f"the engine did not load within {self._watch.load_timeout:g} s; give it longer with --load-timeout."
            ) from None
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
            await asyncio.wait([process.exited])
        finally:
            process.close()

    async def _keep_alive(self) -> None:
        wait = self._watch.restart_first
        while True:
            ready_at = time.monotonic()
            await self._supervise()
            if time.monotonic() - ready_at > 2 * self._watch.restart_most:
                wait = self._watch.restart_first  # it ran for long: earlier crashes no longer count
            restarted = False
            while not restarted:
                self._state = "restarting"
                await asyncio.sleep(wait)
                wait = min(2 * wait, self._watch.restart_most)
                self.restarts += 1
                restarted = await self._relaunch()

    async def _relaunch(self) -> bool:
        try:
            info = await self._launch()
        except EngineUnavailable:
            return False
        if self.on_restart is not None:
            self.on_restart(info)
        return True

    async def _supervise(self) -> None:
        process = self._process
        assert process is not None
        while not process.exited.done():
            await asyncio.wait([process.exited], timeout=self._watch.heartbeat)
            now = time.monotonic()
            if process.asked_at is None:
                process.asked_at = now
                process.send(AskStats())
            elif now - max(process.asked_at, process.last_output_at) > self._watch.hung_after:
                process.kill(f"it sent nothing for {self._watch.hung_after:g} s")
                await asyncio.wait([process.exited])
        process.close()
