"""Runs a command during the load, such as one that kills, replaces or starts a server, and records when it ran."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from time import monotonic_ns

import gevent

from enginebench.records.run import RunEvent
from enginebench.records.stage import SECOND, Nanoseconds, Stage
from enginebench.settings.schema import UserMistake
from loadtests.harness.run.options import ENGINE_PID
from loadtests.harness.run.own_limits import normal_priority
from loadtests.harness.schedule.control import UNDECIDED

logger = logging.getLogger(__name__)

POLL = 0.02  # seconds


def complete(command: str) -> str:
    """The command with the engine's process id. Raises `UserMistake` where there is none."""
    if "{engine}" not in command:
        return command
    pid = os.environ.get(ENGINE_PID)
    if pid is None:
        raise UserMistake(
            "the command names {engine}, the process of an engine that `enginebench run --engine` has started: for "
            "another server give a --command of your own, such as 'docker restart NAME'."
        )
    return command.replace("{engine}", pid)


class TimedCommand:
    """Runs `command` so many seconds after the first stage began; what it prints goes to `command.log` in `folder`.

    `start` is the run's own. `happened` gets an event as the command begins.
    """

    def __init__(
        self,
        command: str,
        at: float,
        start: Nanoseconds,
        first_stage: Callable[[], Stage],
        happened: Callable[[RunEvent], None],
        folder: Path,
    ) -> None:
        self._command, self._at, self._start = command, round(at * SECOND), start
        self._first_stage, self._happened, self._log = first_stage, happened, folder / "command.log"
        self._greenlet = gevent.spawn(self._run)

    def stop(self) -> None:
        """A command that is already running continues."""
        gevent.kill(self._greenlet)

    def _run(self) -> None:
        while (begins := self._first_stage().start) == UNDECIDED or monotonic_ns() < self._start + begins + self._at:
            gevent.sleep(POLL)
        with self._log.open("wb") as log:
            self._happened(RunEvent(monotonic_ns() - self._start, self._command))
            process = subprocess.Popen(
                self._command,
                shell=True,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # A server that it starts must not be preferred as this process is.
                preexec_fn=normal_priority if os.name == "posix" else None,
            )
        if code := process.wait():
            logger.error("The command `%s` ended with exit code %d: see %s", self._command, code, self._log)
