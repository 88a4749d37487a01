"""Loading, restarting, draining and stopping the engine, and whether requests are accepted."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Literal

from engines.contract.base import EngineInfo, GenerateRequest
from engines.contract.errors import EngineError, first_line
from engines.process.replicas import ServedEngine
from engines.process.supervisor import READY_CHECK
from servers.admission import Admission
from servers.http.api_errors import ApiError
from servers.openai.prompts import Tokenizer
from servers.settings import ServerSettings

log = logging.getLogger(__name__)

State = Literal["loading", "ready", "restarting", "failed", "draining", "stopped"]
WARMUP_PROMPT = "The quick brown fox jumps over the lazy dog."
DRAIN_CHECK = 0.02  # seconds between two checks whether all requests have finished


class Lifecycle:
    """The engine's state as clients see it. `open` starts to load it in the background, `close` stops it."""

    def __init__(self, engine: ServedEngine, tokenizer: Tokenizer, settings: ServerSettings) -> None:
        self.engine = engine
        self.admission = Admission(1, settings.queue_size)
        self.failure: str | None = None  # why the engine could not be loaded
        self._tokenizer = tokenizer
        self._settings = settings
        self._draining = False
        self._loading: asyncio.Task[None] | None = None

    @property
    def state(self) -> State:
        if self._draining:
            return "draining"
        if self.failure is not None:
            return "failed"
        if self._loading is None or not self._loading.done():
            return "loading"
        return self.engine.state

    def info(self) -> EngineInfo:
        """Return the loaded engine. Raises `ApiError` 503 with the reason while requests are not accepted."""
        state = self.state
        if state == "ready" and self.engine.info is not None:
            return self.engine.info
        raise self.unavailable(state)

    async def until_ready(self) -> None:
        """Wait while the engine is restarted, even while the server drains. Raises `ApiError` 503 if it has stopped."""
        while (state := self.engine.state) != "ready":
            if state != "restarting":
                raise self.unavailable("draining" if self._draining else state)
            await asyncio.sleep(READY_CHECK)

    def unavailable(self, state: State) -> ApiError:
        """Return the answer to a request while requests are not accepted."""
        message = {
            "loading": "The engine is still loading; /ready answers 200 when it is loaded.",
            "restarting": "The engine's process ended and is being restarted.",
            "failed": "The engine could not be loaded; the server's log says why.",
            "draining": "The server is shutting down.",
        }.get(state, "The engine is stopped.")
        return ApiError(503, message, code=f"engine_{state}", retry_after=1)

    def open(self) -> None:
        self._loading = asyncio.get_running_loop().create_task(self._load(), name="load the engine")

    async def settled(self) -> None:
        """Wait until the engine is ready or has failed."""
        if self._loading is not None:
            await asyncio.shield(self._loading)

    async def drain(self) -> None:
        """Accept no more requests, let the accepted ones finish within `drain_timeout`, then stop the engine."""
        self._draining = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.drain_timeout):
                while self.admission.running or self.admission.waiting:
                    await asyncio.sleep(DRAIN_CHECK)
        await self.close()

    async def close(self) -> None:
        self._draining = True
        if self._loading is not None and not self._loading.done():
            self._loading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._loading
        await self.engine.stop()

    async def _load(self) -> None:
        self.engine.on_change = lambda: self.admission.resize(self.engine.capacity)
        if self._settings.warm_up_tokens:
            self.engine.warm_up = self._warm_up
        try:
            info = await self.engine.start()
        except EngineError as error:
            self.failure = str(error)
            return
        except Exception as error:
            log.exception("the engine could not be loaded")
            self.failure = first_line(error)
            return
        self.admission.resize(info.max_concurrency)

    def _warm_up(self, info: EngineInfo) -> GenerateRequest:
        ids = tuple(self._tokenizer.encode(WARMUP_PROMPT, True, 2 * len(WARMUP_PROMPT)))[: info.context_length // 2]
        return GenerateRequest(self._tokenizer.decode(ids), ids, self._settings.warm_up_tokens)
