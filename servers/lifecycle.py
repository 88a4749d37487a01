"""From an engine that has yet to load to one that is told to go: when requests are accepted, and when no more."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Literal, Protocol

from engines.contract.base import EngineError, EngineInfo, EngineStats, GenerateRequest
from engines.process.child import State as EngineState
from engines.process.stream import Stream
from servers.admission import Admission
from servers.http.errors import ApiError
from servers.openai.prompt import Tokenizer
from servers.settings import Settings

State = Literal["loading", "ready", "restarting", "failed", "draining", "stopped"]
WARMUP_PROMPT = "The quick brown fox jumps over the lazy dog."
DRAIN_CHECK = 0.02  # seconds between two looks at whether everybody has gone

log = logging.getLogger("enginebench.server")


class ServedEngine(Protocol):
    """What the server needs of `engines.process.child.ChildEngine`."""

    on_restart: Callable[[EngineInfo], None] | None

    @property
    def name(self) -> str: ...
    @property
    def state(self) -> EngineState: ...
    @property
    def info(self) -> EngineInfo | None: ...
    @property
    def restarts(self) -> int: ...
    async def start(self) -> EngineInfo: ...
    def generate(self, request: GenerateRequest) -> Stream: ...
    async def stats(self) -> EngineStats: ...
    async def stop(self) -> None: ...


class Lifecycle:
    """The engine's life as clients see it. `open` starts loading in the background, `close` ends everything."""

    def __init__(self, engine: ServedEngine, tokenizer: Tokenizer, settings: Settings) -> None:
        self.engine = engine
        self.admission = Admission(1, settings.queue_size)
        self.failure: str | None = None  # why the engine could not be loaded
        self._tokenizer = tokenizer
        self._settings = settings
        self._draining = False
        self._loading: asyncio.Task[None] | None = None
        self._warming: asyncio.Task[None] | None = None  # after a restart; the first warm-up belongs to the loading

    @property
    def state(self) -> State:
        if self._draining:
            return "draining"
        if self.failure is not None:
            return "failed"
        if self._loading is None or not self._loading.done():
            return "loading"
        if self._warming is not None and not self._warming.done():
            return "restarting"
        return self.engine.state

    def info(self) -> EngineInfo:
        """What is being served. Raises `ApiError` 503, with the reason, while requests are not accepted."""
        state = self.state
        if state == "ready" and self.engine.info is not None:
            return self.engine.info
        message = {
            "loading": "The engine is still loading; /ready tells when it is not.",
            "restarting": "The engine's process ended and is being started again.",
            "failed": "The engine could not be loaded; the server's log says why.",
            "draining": "The server is shutting down.",
        }.get(state, "The engine is stopped.")
        raise ApiError(503, message, code=f"engine_{state}", retry_after=1)

    def open(self) -> None:
        self._loading = asyncio.get_running_loop().create_task(self._load(), name="load the engine")

    async def settled(self) -> None:
        """Wait until the engine is ready or has failed."""
        if self._loading is not None:
            await asyncio.shield(self._loading)

    async def drain(self) -> None:
        """Accept nothing more, let everybody inside finish, and stop the engine, at the latest when patience ends."""
        self._draining = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.drain_timeout):
                while self.admission.running or self.admission.waiting:
                    await asyncio.sleep(DRAIN_CHECK)
        await self.close()

    async def close(self) -> None:
        self._draining = True
        for task in (self._loading, self._warming):
            if task is not None and not task.done():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        await self.engine.stop()

    async def _load(self) -> None:
        self.engine.on_restart = self._restarted
        try:
            info = await self.engine.start()
        except EngineError as error:
            self.failure = str(error)
            log.error("%s could not be loaded: %s", self.engine.name, error)
            return
        await self._prepare(info)

    def _restarted(self, info: EngineInfo) -> None:
        self._warming = asyncio.get_running_loop().create_task(self._prepare(info), name="warm the engine up")

    async def _prepare(self, info: EngineInfo) -> None:
        if self._settings.warmup_tokens:
            await self._warm_up(info)
        self.admission.resize(info.max_concurrency)

    async def _warm_up(self, info: EngineInfo) -> None:
        """The first request of many engines is slower than all others: make it before anybody is waiting."""
        ids = tuple(self._tokenizer.encode(WARMUP_PROMPT, special=True))[: info.context_length // 2]
        request = GenerateRequest(self._tokenizer.decode(ids), ids, self._settings.warmup_tokens)
        try:
            async for _ in self.engine.generate(request):
                pass
        except EngineError as error:
            log.warning("the warm-up request failed: %s", error)
