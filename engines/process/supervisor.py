"""An engine in a child process: started, supervised, given requests, and restarted when it ends.

A computing engine never holds the server's interpreter lock, its crash does not end the server, and an engine whose
libraries conflict with ours runs on a separate interpreter. Everything here runs on one asyncio loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from enginebench.settings.schema import setting
from engines.contract import registry
from engines.contract.base import EngineInfo, EngineStats, GenerateRequest, Launch, Model
from engines.contract.errors import EngineCrashed, EngineError, EngineUnavailable, FatalError
from engines.contract.protocol import AskStats, Load
from engines.machine.devices import amd_gpus, gpus_at, visible_gpus
from engines.machine.memory import DeviceMemory
from engines.process.child_process import Process
from engines.process.launching import command_of, environment_of
from engines.process.stream import Stream
from engines.process.tree import EngineGuard, own_age

DEFAULT_LAUNCH = Launch()
READY_CHECK = 0.02  # seconds
State = Literal["loading", "ready", "restarting", "failed", "stopped"]
process_setting = partial(setting, metavar="S", least=1, group="The engine's process")

log = logging.getLogger("enginebench.engines")


@dataclass(frozen=True, slots=True)
class Watch:
    """How the child process is supervised. Durations in seconds."""

    hung_after: float = process_setting(
        60.0, "Seconds without an answer to a heartbeat before the engine is restarted."
    )
    load_timeout: float = process_setting(1800.0, "Seconds the engine may take to load its model.")
    heartbeat: float = 1.0  # between two heartbeats
    restart_first: float = 0.5  # before the first restart; doubles up to `restart_most`
    restart_most: float = 30.0
    stop_grace: float = 5.0  # for a child to exit after its input was closed, before it is killed


class ChildEngine:
    """An engine that is restarted when it ends. `start()` once, `generate()` many times, `stop()` at the end.

    `generate` never waits: the caller keeps to `info.max_concurrency` requests at a time.
    """

    def __init__(
        self,
        name: str,
        model: Model | None,
        options: Mapping[str, str],
        launch: Launch = DEFAULT_LAUNCH,
        watch: Watch = Watch(),
        target: str | None = None,
        warms_up: bool = True,
        gpus: int = 1,
    ) -> None:
        """`target` is the "module:Class" of an engine in Python, by default of the engine registered as `name`.

        `gpus` is the number of GPUs that it takes if it computes on GPUs.
        """
        self.name = name
        self._state: State = "stopped"
        self.info: EngineInfo | None = None
        self.restarts = 0
        self.on_change: Callable[[], None] | None = None  # called when the child ended, and when a new one is ready
        self.warm_up: Callable[[EngineInfo], GenerateRequest] | None = None  # a request before every child is ready
        self._load = Load(name, model, dict(options))
        self._launch = launch
        self._target, self._warms_up = target, warms_up
        self._gpu_count, self._visible_gpus = gpus, list[str]()
        self._guard: EngineGuard | None = None
        self._watch = watch
        self._ids = itertools.count(1)
        self._process: Process | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._device_memory: DeviceMemory | None = None  # of a machine with GPUs
        self._cpu_seconds: dict[int, float] = {}  # of each process that was started, by its id

    @property
    def state(self) -> State:
        if self._state == "ready" and self._process is not None and self._process.exited.done():
            return "restarting"  # it ended a moment ago; the supervising task has not run yet
        return self._state

    @property
    def running(self) -> int:
        """Return the number of requests that the child has not finished."""
        return self._process.running if self._process is not None else 0

    @property
    def capacity(self) -> int:
        """Return the number of requests that the engine runs at a time, even while it is restarted."""
        return self.info.max_concurrency if self.info is not None else 1

    @property
    def replicas_ready(self) -> int:
        return int(self.state == "ready")

    @property
    def pid(self) -> int | None:
        """Return the child's process id, while it lives."""
        return self._process.pid if self._process is not None else None

    @property
    def gpus(self) -> tuple[str, ...] | None:
        """Return the GPUs that the engine computes on, as CUDA_VISIBLE_DEVICES names them; `None` before it is loaded,
        or if unknown."""
        return None if self.info is None else gpus_at(self.info.device, self._gpu_count, self._visible_gpus)

    async def start(self) -> EngineInfo:
        """Start the child and load the model. Raises `EngineUnavailable`."""
        self._state = "loading"
        try:
            info = await self._start_process()
        except BaseException:
            self._state = "failed"
            if self._guard is not None:
                self._guard.close()
                self._guard = None
            raise
        self._keeper = asyncio.get_running_loop().create_task(self._keep_alive(), name=f"keep {self.name} alive")
        return info

    def generate(self, request: GenerateRequest) -> Stream:
        """Raises `EngineUnavailable` while the engine is not ready."""
        if self.state != "ready" or self._process is None:
            raise EngineUnavailable(f"the engine is {self.state}; try again shortly.")
        return self._process.open_stream(next(self._ids), request)

    async def until_ready(self) -> None:
        """Wait until requests are accepted. Raises `EngineUnavailable` if that will not happen again."""
        while self.state != "ready":
            if self._keeper is None or self._keeper.done() or self._state in {"failed", "stopped"}:
                raise EngineUnavailable(f"the engine is {self.state}.")
            await asyncio.sleep(READY_CHECK)

    async def stats(self) -> EngineStats:
        """Return the engine's own figures as of the last heartbeat; memory and CPU time of its processes as of now.

        The CPU time includes that of processes that have ended: a sum over replicas must not fall at a restart.
        """
        stats, process = EngineStats(), self._process
        if process is not None and (tree := process.tree) is not None:
            usage = await asyncio.to_thread(tree.usage)  # reads every process of the machine
            if usage is not None:
                self._cpu_seconds[tree.pid] = usage.cpu
                stats = replace(process.stats, memory_bytes=usage.memory, memory_peak_bytes=usage.memory_peak)
            if (held := self._counted_by_driver(process)) is not None:
                now = await asyncio.to_thread(held.look, process.pid, self.gpus or ())
                stats = replace(stats, device_memory_bytes=now, device_memory_peak_bytes=held.peak)
        return replace(stats, cpu_seconds=sum(self._cpu_seconds.values()) if self._cpu_seconds else None)

    def _counted_by_driver(self, process: Process) -> DeviceMemory | None:
        """Return the driver's count; `None` for an engine that computes elsewhere, such as on another server's GPU, or
        counts itself."""
        on_gpu = self.info is not None and self.info.device.startswith("cuda") and self._gpu_count > 0
        return self._device_memory if on_gpu and process.stats.device_memory_bytes is None else None

    async def stop(self) -> None:
        """End the child: by ending its input, then by a kill. Running requests fail."""
        self._state = "stopped"
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
        await self._end_process()
        if self._guard is not None:
            self._guard.close()
            self._guard = None

    async def _start_process(self) -> EngineInfo:
        target = self._target or registry.spec(self.name).target if self._launch.command is None else ""
        command = command_of(self._launch, target)
        process = self._process = Process(self.name)
        process.on_exit = self._changed
        gpus = visible_gpus(self._launch.environment) if self._load.model is not None else []
        self._visible_gpus = gpus or amd_gpus(self._launch.environment)
        self._device_memory = await asyncio.to_thread(DeviceMemory, gpus) if gpus else None
        server_seconds = own_age() if self._guard is None else None  # not for a restart
        spawned = time.monotonic()
        try:
            await process.start(command, environment_of(self._launch, target))
        except OSError as error:
            raise EngineUnavailable(f"cannot start {command[0]}: {error.strerror}.") from error
        if self._guard is None:
            self._guard = EngineGuard()
        self._guard.watch(process.pid)
        process.send(self._load)
        try:
            async with asyncio.timeout(self._watch.load_timeout):
                info = await asyncio.shield(process.loaded)
                loaded = time.monotonic()
                await self._warm(process, info)
        except TimeoutError:
            await self._end_process()
            raise EngineUnavailable(
                f"the engine did not load within {self._watch.load_timeout:g} s; give it longer with --load-timeout."
            ) from None
        except BaseException:
            await self._end_process()
            raise
        inside = dict(info.startup) or {"load": loaded - spawned}
        outside = loaded - spawned - sum(inside.values())
        warm_up = time.monotonic() - loaded
        phases = {"server": server_seconds, "process": outside, **inside, "warm_up": warm_up}
        self.info = replace(info, startup={name: seconds for name, seconds in phases.items() if seconds})
        self._state = "ready"
        return self.info

    async def _warm(self, process: Process, info: EngineInfo) -> None:
        """Run a request before others do: with many engines the first one is slower than the rest. An engine that it
        ends has not loaded."""
        if self.warm_up is None or not self._warms_up:
            return
        try:
            async for _ in process.open_stream(next(self._ids), self.warm_up(info)):
                pass
        except (EngineCrashed, FatalError) as error:
            raise EngineUnavailable(f"its first request, the warm-up, ended it: {error}") from error
        except EngineError as error:
            log.warning("the warm-up request of %s failed: %s", self.name, error)

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()

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
            process.kill("it was stopped")  # also processes that outlived their leader
            process.close()
        await process.until_gone()

    async def _keep_alive(self) -> None:
        wait = self._watch.restart_first
        while True:
            ready_at = time.monotonic()
            await self._supervise()
            if time.monotonic() - ready_at > 2 * self._watch.restart_most:
                wait = self._watch.restart_first  # it ran for long: earlier crashes no longer count
            while True:
                self._state = "restarting"
                await asyncio.sleep(wait)
                wait = min(2 * wait, self._watch.restart_most)
                self.restarts += 1
                with contextlib.suppress(EngineUnavailable):
                    await self._start_process()
                    break
            self._changed()

    async def _supervise(self) -> None:
        process = self._process
        assert process is not None
        while not process.exited.done():
            await asyncio.wait([process.exited], timeout=self._watch.heartbeat)
            if (held := self._counted_by_driver(process)) is not None:
                await asyncio.to_thread(held.look, process.pid, self.gpus or ())  # for its peak
            now = time.monotonic()
            if process.asked_at is None:
                process.asked_at = now
                process.send(AskStats())
            elif now - max(process.asked_at, process.last_output_at) > self._watch.hung_after:
                process.kill(f"it sent nothing for {self._watch.hung_after:g} s")
                await asyncio.wait([process.exited])
        process.close()
        await process.until_gone()
