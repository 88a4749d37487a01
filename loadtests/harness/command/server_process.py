"""An engine behind our server, in a separate process, for the duration of a test."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import TracebackType

import httpx
import psutil

from enginebench.settings.system import last_line
from loadtests.harness.command.guard import Guard, start_guarded
from loadtests.harness.run.options import ENGINE_PID, SERVER_READY, SERVER_STARTED

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
    """Listen on loopback, on the first of `ports` that is free; 0 is any. Raises `ServerFailed`."""
    for port in ports:
        try:
            return socket.create_server(("127.0.0.1", port), backlog=BACKLOG)
        except OSError as error:
            reason = f"cannot serve on port {port} ({(error.strerror or str(error)).partition(' (while')[0]})"
    raise ServerFailed(f"{reason}.")


class ServerProcess:
    """`with ServerProcess("fake", ["ttft=0.3"], None, log) as server:` starts it; leaving the block always ends it."""

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
        """`options` are `name=value`; the server's output goes to the file `log`. The server takes over `listener`.
        With `own_server`, the engine's own server is started instead of ours. `settings` are environment variables."""
        self.engine = engine
        self._ready_path = "health" if own_server else "ready"  # as vLLM, SGLang, llama.cpp and trtllm-serve have it
        self.log = log
        self._listener = listener or listen([0])
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._command = [*PYTHON, "-m", "enginebench", "serve", engine]
        self._command += [word for option in options for word in ("-o", option)]
        self._command += ["--model", model] if model else []
        self._command += ["--own-server"] if own_server else []
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: Guard | None = None
        self._started = self._ready = 0
        self._ending = False

    def __enter__(self) -> ServerProcess:
        self._started = time.monotonic_ns()
        descriptor = self._listener.fileno()
        with self.log.open("ab") as log, closing(self._listener):  # so that the port is free when the server ends
            self._process, self._guard = start_guarded(
                self._command,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[descriptor],
                env={**os.environ, **self._settings, "ENGINEBENCH_LISTENER": str(descriptor)},
                start_new_session=True,  # a Ctrl-C in the terminal is for this process, which stops the server
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        assert self._guard is not None
        with closing(self._guard):
            if not self.alive:
                return
            self.terminate()
            try:
                self._process.wait(STOP_LIMIT if kind is None else STOP_LIMIT / 10)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)  # with its children: it leads a session of its own
                self._process.wait()

    def terminate(self) -> None:
        """Ask the server to end, once; leaving the block waits for it."""
        if self._process is not None and not self._ending:
            self._ending = True
            self._process.terminate()

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def processes(self) -> tuple[int, int | None]:
        """Return the ids of the server's process and of the engine's."""
        assert self._process is not None
        children = psutil.Process(self._process.pid).children()
        engine = next((child.pid for child in children if child.name() != "sh"), None)  # a shell guards the engine
        return self._process.pid, engine

    @property
    def variables(self) -> dict[str, str]:
        """Return environment variables for a process that tests this server, which must be ready."""
        _, engine = self.processes
        values = {SERVER_STARTED: self._started, SERVER_READY: self._ready, ENGINE_PID: engine}
        return {name: str(value) for name, value in values.items() if value is not None}

    def wait_until_ready(self, progress: Callable[[float], None]) -> None:
        """Wait, calling `progress` with the seconds so far. Raises `ServerFailed` if the server exits."""
        assert self._process is not None
        started = time.monotonic()
        with httpx.Client(verify=False, trust_env=False, timeout=1) as http:
            while True:
                if self._process.poll() is not None:
                    raise ServerFailed(self._reason())
                try:
                    if http.get(f"{self.url}/{self._ready_path}").status_code == 200:
                        self._ready = time.monotonic_ns()
                        return
                except httpx.HTTPError:
                    pass  # the server does not answer yet
                progress(time.monotonic() - started)
                time.sleep(pause(time.monotonic() - started))

    def _reason(self) -> str:
        line = last_line(self.log.read_text(errors="replace"))
        return f"{line}\n(all output: {self.log})" if line else f"{self.engine} ended at once without output."
