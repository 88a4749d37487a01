"""A server that a command of the user's starts, such as `vllm serve --max-num-seqs {max_num_seqs}`."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType

import httpx

from enginebench.settings.schema import UserMistake
from enginebench.settings.system import last_line
from loadtests.harness.client.server_address import Address
from loadtests.harness.command.guard import Guard, start_guarded
from loadtests.harness.command.server_process import POLL, STOP_LIMIT, ServerFailed, pause
from loadtests.harness.run.options import SERVER_LISTENING, SERVER_READY, SERVER_STARTED

PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\}")  # braces of JSON are left as they are
READY_PATHS = ("/ready", "/health", "/v1/models")  # the first that the server has says whether it is ready
NO_SUCH_PATH = {404, 405}
LOCKED = {401, 403}  # the server answers, and wants a key


def fill(command: str, options: Mapping[str, str]) -> str:
    """Return the shell command with the options in place of `{name}`. Raises `UserMistake` unless every option has its
    place, and every place its option."""
    places = set(PLACEHOLDER.findall(command))
    if unfilled := sorted(places - set(options)):
        raise UserMistake(f"--restart has {{{unfilled[0]}}}, which no -o {unfilled[0]}=… sets.")
    if unused := sorted(set(options) - places):
        raise UserMistake(f"-o {unused[0]}=… has no effect: write {{{unused[0]}}} into the command of --restart.")
    return PLACEHOLDER.sub(lambda match: shlex.quote(options[match[1]]), command)


class RestartedServer:
    """`with RestartedServer("vllm serve …", "http://127.0.0.1:8000", log) as server: server.wait_until_ready(show)`

    The command is the server, whose process group is ended when the block is left; or it ends with exit code 0 once
    something else has the server started, such as `docker compose up --detach`, and the server is left running.
    """

    def __init__(self, command: str, url: str, log: Path) -> None:
        self.url, self.log = url, log
        self._command = command
        self._http = httpx.Client(verify=False, trust_env=False, timeout=1)  # making one takes 20 ms
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: Guard | None = None
        self._started = self._listening = self._ready = 0
        self._replaced = True  # whether an answer can only be that of the new server

    def __enter__(self) -> RestartedServer:
        self._replaced = not self._answers()
        self._started = time.monotonic_ns()
        with self.log.open("ab") as log:
            self._process, self._guard = start_guarded(
                ["/bin/sh", "-c", self._command],
                group=True,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C in the terminal is for this process, which stops the server
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
            while time.monotonic() < ends:
                self._process.poll()
                os.killpg(self._process.pid, 0)
                time.sleep(POLL)
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def terminate(self) -> None:
        """Ask the process group to end; leaving the block waits for it."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGTERM)

    @property
    def alive(self) -> bool:
        """Return whether the server may be running: a command with exit code 0 has handed it over."""
        return self._process is not None and self._process.poll() in {None, 0}

    @property
    def variables(self) -> dict[str, str]:
        """Return environment variables for a process that tests this server, which must be ready."""
        instants = {SERVER_STARTED: self._started, SERVER_LISTENING: self._listening, SERVER_READY: self._ready}
        return {name: str(instant) for name, instant in instants.items()}

    def wait_until_ready(self, progress: Callable[[float], None]) -> float:
        """Wait, calling `progress` with the seconds so far, which may raise. Return the seconds since the start. Raises
        `ServerFailed` if the command fails."""
        assert self._process is not None
        while True:
            code = self._process.poll()
            if code:
                raise ServerFailed(self._reason(code))
            answers = self._answers()
            self._replaced |= code == 0 or not answers
            if answers and self._replaced and not self._listening:
                self._listening = time.monotonic_ns()
            if answers and self._replaced and self._is_ready():
                self._ready = time.monotonic_ns()
                return (self._ready - self._started) / 1e9
            progress((time.monotonic_ns() - self._started) / 1e9)
            time.sleep(pause((time.monotonic_ns() - self._started) / 1e9))

    def _answers(self) -> bool:
        return self._status("/v1/models") is not None

    def _is_ready(self) -> bool:
        statuses = (self._status(path) for path in READY_PATHS)
        decisive = next((status for status in statuses if status not in NO_SUCH_PATH), None)
        return decisive is not None and (decisive < 300 or decisive in LOCKED)

    def _status(self, path: str) -> int | None:
        address = Address.parse(self.url)
        try:
            return self._http.get(address.origin + address.target(path)).status_code
        except httpx.HTTPError:
            return None  # the server does not answer yet

    def _reason(self, code: int) -> str:
        line = last_line(self.log.read_text(errors="replace"))
        ended = f"the command of --restart ended with exit code {code}"
        return f"{ended}: {line}\n(all output: {self.log})" if line else f"{ended} without output."
