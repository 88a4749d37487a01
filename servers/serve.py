"""Run the app on uvicorn (with uvloop, if installed) until a signal stops it; running requests may finish."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import sys
from importlib.util import find_spec
from types import FrameType

import uvicorn
from fastapi import FastAPI

from enginebench.settings.system import raise_descriptor_limit
from engines.machine.extras import install_command
from servers.http.address import url_of
from servers.http.connection import Connection
from servers.lifecycle import Lifecycle
from servers.openai.completions import CompletionPaths

# New objects before the youngest generation is collected, and how often that happens before the next ones are. A full
# collection delays a thousand streams by 60 ms; garbage that only it finds is rare.
GC_THRESHOLDS = (20_000, 10, 100)
SWITCH_INTERVAL = 0.001  # seconds for which a thread that reads a large body may delay the event loop; Python: 0.005
KEEP_ALIVE = 120  # seconds after which an idle connection is closed: users of a load test think in between
FLUSH_TIMEOUT = 5  # seconds to send the last bytes after the engine has stopped


class Server(uvicorn.Server):
    """A server that prints when it is ready. The first signal drains it, the second stops it at once."""

    def __init__(self, config: uvicorn.Config, lifecycle: Lifecycle, address: str) -> None:
        super().__init__(config)
        self._lifecycle = lifecycle
        self._address = address
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        # Objects made so far are permanent: exclude them from collections, which would delay running requests.
        # Chunks are many, short-lived and free of cycles: collect less often than by default.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
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
        _say(f"{name} is ready at {self._address}")

    async def _drain(self) -> None:
        waiting = self._lifecycle.admission.running + self._lifecycle.admission.waiting
        _say(f"stopping: {waiting} requests may finish; a second signal stops at once" if waiting else "stopping")
        try:
            await self._lifecycle.drain()
        finally:
            self.should_exit = True


def run(app: FastAPI, listener: socket.socket) -> str | None:
    """Serve until a signal arrives. Return why the engine could not be loaded, or `None`."""
    lifecycle: Lifecycle = app.state.lifecycle
    address = url_of(listener)
    loop = "uvloop" if find_spec("uvloop") is not None else "asyncio"
    if loop == "asyncio" and sys.platform != "win32":
        _say(f"uvloop is not installed, so the server handles fewer tokens/s: {install_command('server')}")
    config = uvicorn.Config(
        CompletionPaths(app, app.state.context),
        loop=loop,
        http=Connection,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=FLUSH_TIMEOUT,
    )
    _say(f"loading {lifecycle.engine.name}; it will be served at {address}")
    sys.setswitchinterval(SWITCH_INTERVAL)
    raise_descriptor_limit()
    Server(config, lifecycle, address).run(sockets=[listener])
    return lifecycle.failure


def configure_logging(level: str) -> None:
    """Log messages of this package and of the engine at `level`, of libraries from warnings on, to standard error."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    logging.getLogger("enginebench").setLevel(level.upper())


def _say(sentence: str) -> None:
    """Print to standard error. If its reader is gone, a signal must still end the server."""
    try:
        print(sentence, file=sys.stderr, flush=True)
    except OSError:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # until the process ends
