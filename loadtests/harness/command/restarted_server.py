"""A server that the user's command starts, such as `vllm serve --max-num-seqs {max_num_seqs}`."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from enginebench.settings.schema import UserMistake
from loadtests.harness.command.server_process import StartedServer

PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\}")  # braces of JSON are left as they are
READY_PATHS = ("/ready", "/health", "/v1/models")  # the first of these that the server has shows whether it is ready
NO_SUCH_PATH = {404, 405}
LOCKED = {401, 403}  # the server answers, and wants a key


def fill(command: str, options: Mapping[str, str]) -> str:
    """Return the shell command with the options in place of `{name}`. Raises `UserMistake` unless each option has a
    placeholder and each placeholder an option."""
    places = set(PLACEHOLDER.findall(command))
    if unfilled := sorted(places - set(options)):
        raise UserMistake(f"--restart has {{{unfilled[0]}}}, which no -o {unfilled[0]}=… sets.")
    if unused := sorted(set(options) - places):
        raise UserMistake(f"-o {unused[0]}=… has no effect: write {{{unused[0]}}} into the command of --restart.")
    return PLACEHOLDER.sub(lambda match: shlex.quote(options[match[1]]), command)


class RestartedServer(StartedServer):
    """`with RestartedServer("vllm serve …", "http://127.0.0.1:8000", log) as server: server.wait_until_ready(show)`

    Either the command is the server, whose process group is ended when the block is left; or the command, such as
    `docker compose up --detach`, ends with exit code 0 once the server is started, and the server is left running.
    """

    def __init__(self, command: str, url: str, log: Path) -> None:
        super().__init__(["/bin/sh", "-c", command], url, log, group=True)
        self._replaced = True  # whether only the new server can answer

    def __enter__(self) -> Self:
        self._replaced = self._status("/v1/models") is None
        return super().__enter__()

    @property
    def alive(self) -> bool:
        """Return whether the server may be running: a command with exit code 0 has handed it over."""
        return self._process is not None and self._process.poll() in {None, 0}

    def _is_ready(self) -> bool:
        assert self._process is not None
        answers = self._status("/v1/models") is not None
        self._replaced |= self._process.poll() == 0 or not answers
        if not answers or not self._replaced:
            return False
        self._listening = self._listening or time.monotonic_ns()
        statuses = (self._status(path) for path in READY_PATHS)
        decisive = next((status for status in statuses if status not in NO_SUCH_PATH), None)
        return decisive is not None and (decisive < 300 or decisive in LOCKED)

    def _reason(self, line: str) -> str:
        assert self._process is not None
        ended = f"the command of --restart ended with exit code {self._process.returncode}"
        return f"{ended}: {line}\n(all output: {self.log})" if line else f"{ended} without output."
