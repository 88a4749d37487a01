"""Servers in a separate process, for the duration of a test: an engine behind our server."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import psutil

from enginebench.settings.schema import LISTENER
from enginebench.settings.system import last_line
from loadtests.harness.client.server_address import Address
from loadtests.harness.command.guard import Guard, start_guarded
from loadtests.harness.run.options import ENGINE_PID, SERVER_LISTENING, SERVER_READY, SERVER_STARTED

PYTHON = (sys.executable, "-P")  # without the current folder, whose files may have the names of packages
LOCUST = (*PYTHON, str(Path(__file__).parents[1] / "users" / "launch.py"))
POLL, MIN_POLL = 0.2, 0.01  # seconds between two checks
PORTS = range(8000, 8004)  # scraped by docker/prometheus/targets/servers.yml
BACKLOG = 2048  # connections that may wait to be accepted
STOP_LIMIT = 60.0  # seconds from SIGTERM to SIGKILL: more than the server's own drain takes


class ServerFailed(Exception):
    """The server did not start. The text is a sentence."""


def pause(seconds: float) -> float:
    """Return how long to wait for the next check after `seconds`: 0.5 % of the time that is being measured."""
    return min(POLL, max(seconds / 200, MIN_POLL))


def listen(ports: Iterable[int]) -> socket.socket:
    """Listen on loopback, on the first of `ports` that is free; 0 means any. Raises `ServerFailed`."""
    for port in ports:
        try:
            return socket.create_server(("127.0.0.1", port), backlog=BACKLOG)
        except OSError as error:
            reason = f"cannot serve on port {port} ({(error.strerror or str(error)).partition(' (while')[0]})"
    raise ServerFailed(f"{reason}.")


class StartedServer:
    """A server in a separate process, which leads a process group. Leaving the block always ends it."""

    def __init__(self, command: Sequence[str], url: str, log: Path, group: bool, **settings: Any) -> None:
        """The server's output goes to the file `log`. With `group`, all its processes are asked to end; otherwise only
        the first, which asks the others. `settings` are those of `Popen`."""
        self.url, self.log = url, log
        self._command, self._group, self._settings = command, group, settings
        self._http = httpx.Client(verify=False, trust_env=False, timeout=1)  # making one takes 20 ms
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: Guard | None = None
        self._started = self._listening = self._ready = 0
        self._ending = False

    def __enter__(self) -> Self:
        self._started = time.monotonic_ns()
        with self.log.open("ab") as log:
            self._process, self._guard = start_guarded(
                self._command,
                group=self._group,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C in the terminal is for this process, which stops the server
                **self._settings,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        assert self._guard is not None
        with closing(self._http), closing(self._guard), suppress(ProcessLookupError):  # nothing of the group is left
            self.terminate()
            ends = time.monotonic() + (STOP_LIMIT if kind is None else STOP_LIMIT / 10)
            try:
                while time.monotonic() < ends:
                    self._process.poll()
                    os.killpg(self._process.pid, 0)
                    time.sleep(MIN_POLL)
            finally:  # after a second Ctrl-C, too
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def terminate(self) -> None:
        """Ask the server to end, once; leaving the block waits for it."""
        if self._process is not None and not self._ending:
            self._ending = True
            if not self._group:
                self._process.terminate()
                return
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def variables(self) -> dict[str, str]:
        """Return environment variables for a process that tests this server, which must be ready."""
        instants = {SERVER_STARTED: self._started, SERVER_LISTENING: self._listening, SERVER_READY: self._ready}
        return {name: str(instant) for name, instant in instants.items() if instant}

    def wait_until_ready(self, progress: Callable[[float], None]) -> None:
        """Wait, calling `progress`, which may raise, with the seconds so far. Raises `ServerFailed` if the server
        ends."""
        while self.alive:
            if self._is_ready():
                self._ready = time.monotonic_ns()
                return
            waited = (time.monotonic_ns() - self._started) / 1e9
            progress(waited)
            time.sleep(pause(waited))
        raise ServerFailed(self._reason(last_line(self.log.read_text(errors="replace"))))

    def _is_ready(self) -> bool:
        raise NotImplementedError

    def _status(self, path: str) -> int | None:
        address = Address.parse(self.url)
        try:
            return self._http.get(address.origin + address.target(path)).status_code
        except httpx.HTTPError:
            return None  # the server does not answer yet

    def _reason(self, line: str) -> str:
        """Say why the server has ended, by the last line of its output."""
        raise NotImplementedError


class ServerProcess(StartedServer):
    """`with ServerProcess("fake", ["ttft=0.3"], None, log) as server:` serves an engine."""

    def __init__(
        self,
        engine: str,
        options: Sequence[str],
        model: str | None,
        log: Path,
        listener: socket.socket | None = None,
        own_server: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`options` are `name=value`. The server takes over `listener`. With `own_server`, the engine's own server is
        started instead of ours. `settings` are environment variables."""
        self.engine = engine
        self._ready_path = "/health" if own_server else "/ready"  # the path of vLLM, SGLang, llama.cpp and trtllm-serve
        self._listener = listener or listen([0])
        descriptor = self._listener.fileno()
        command = [*PYTHON, "-m", "enginebench", "serve", engine]
        command += [word for option in options for word in ("-o", option)]
        command += ["--model", model] if model else []
        command += ["--own-server"] if own_server else []
        url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        environment = {**os.environ, **(settings or {}), LISTENER: str(descriptor)}
        super().__init__(command, url, log, group=False, pass_fds=[descriptor], env=environment)

    def __enter__(self) -> Self:
        with closing(self._listener):  # so that the port is free when the server ends
            return super().__enter__()

    @property
    def processes(self) -> tuple[int, int | None]:
        """Return the ids of the server's process and of the engine's."""
        assert self._process is not None
        children = psutil.Process(self._process.pid).children()
        engine = next((child.pid for child in children if child.name() != "sh"), None)  # a shell guards the engine
        return self._process.pid, engine

    @property
    def variables(self) -> dict[str, str]:
        _, engine = self.processes
        return super().variables | ({} if engine is None else {ENGINE_PID: str(engine)})

    def _is_ready(self) -> bool:
        return self._status(self._ready_path) == 200

    def _reason(self, line: str) -> str:
        return f"{line}\n(all output: {self.log})" if line else f"{self.engine} ended at once without output."
