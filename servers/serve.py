"""Run the app on uvicorn (uvloop, httptools) until a signal asks to stop; then let those inside finish."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import sys
from types import FrameType

import uvicorn
from fastapi import FastAPI

from servers.http.address import url_of
from servers.http.connection import limited
from servers.lifecycle import Lifecycle
from servers.settings import ServerSettings

GC_THRESHOLD = 20_000  # new objects between two looks at the youngest
LAST_WORDS = 5  # seconds for the last bytes to leave once the engine has stopped


class Server(uvicorn.Server):
    """Says when it is ready; drains at the first signal, goes at once at the second."""

    def __init__(self, config: uvicorn.Config, lifecycle: Lifecycle, address: str) -> None:
        super().__init__(config)
        self._lifecycle = lifecycle
        self._address = address
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        self._tasks.append(self._loop.create_task(self._announce()))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._loop is None or self._lifecycle.state == "draining":
            self.should_exit = self.force_exit = True
        else:
            self._loop.call_soon_threadsafe(lambda: self._tasks.append(asyncio.ensure_future(self._drain())))

    async def _announce(self) -> None:
        await self._lifecycle.settled()
        name = self._lifecycle.engine.name
        if self._lifecycle.failure is not None:
            self.should_exit = True
            return
        # What has been made so far stays: the collector need not look at it again in the middle of somebody's answer.
        # Chunks come by the thousand and die young, without cycles: look for cycles less often than by default.
        gc.collect()
        gc.freeze()
        gc.set_threshold(GC_THRESHOLD)
        _say(f"{name} is ready at {self._address}")

    async def _drain(self) -> None:
        waiting = self._lifecycle.admission.running + self._lifecycle.admission.waiting
        _say(f"stopping: {waiting} requests may finish; a second signal stops at once" if waiting else "stopping")
        await self._lifecycle.drain()
        self.should_exit = True


def run(app: FastAPI, listener: socket.socket, settings: ServerSettings) -> str | None:
    """Serve until asked to stop. Returns why the engine could not be loaded, or `None` after a good end."""
    lifecycle: Lifecycle = app.state.lifecycle
    address = url_of(listener)
    config = uvicorn.Config(
        app,
        loop="uvloop" if sys.platform != "win32" else "asyncio",
        http=limited(settings),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=int(settings.keep_alive),
        timeout_graceful_shutdown=LAST_WORDS,
    )
    _say(f"{lifecycle.engine.name} is loading, to be served at {address}")
    Server(config, lifecycle, address).run(sockets=[listener])
    return lifecycle.failure


def configure_logging(level: str) -> None:
    """Ours and the engine's words at `level`, other people's from warnings on; all on standard error."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    logging.getLogger("enginebench").setLevel(level.upper())


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)
