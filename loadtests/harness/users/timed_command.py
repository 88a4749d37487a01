"""A shell command that runs during the load, for example to kill, replace or start a server, and is recorded."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Callable
from math import inf
from pathlib import Path
from time import monotonic_ns

import gevent

from enginebench.records.run import RunEvent
from enginebench.records.stage import SECOND, Nanoseconds, Stage, StagePlan
from enginebench.settings.schema import UserMistake
from enginebench.settings.units import parse_seconds
from loadtests.harness.run.options import ENGINE_PID
from loadtests.harness.run.own_limits import normal_priority
from loadtests.harness.schedule.control import UNDECIDED

logger = logging.getLogger(__name__)

POLL = 0.02  # seconds
DEFAULT_AT = 30.0  # seconds into the first stage


def parse(text: str) -> tuple[float, str]:
    """Return the seconds into the first stage and the command, from text such as `60s docker restart a`. Raises
    `UserMistake` if the command names the engine's process and `enginebench run` started none."""
    first, _, rest = text.strip().partition(" ")
    try:
        at, command = parse_seconds(first), rest.strip()
    except ValueError:
        at, command = DEFAULT_AT, text.strip()
    if not command or not 0 <= at < inf:
        raise UserMistake(f"--command is a shell command, optionally after a time, not `{text}`.")
    if "{engine}" not in command:
        return at, command
    pid = os.environ.get(ENGINE_PID)
    if pid is None:
        raise UserMistake(
            "the command names {engine}, the process of an engine that `enginebench run --engine` has started: for "
            "another server give a --command of your own, such as '60s docker restart NAME'."
        )
    return at, command.replace("{engine}", pid)


def check(text: str, stage: StagePlan) -> None:
    """Raise `UserMistake` for a mistake in the command, or if it would run after the first stage."""
    at, _ = parse(text)
    seconds = sum(part.amount if part.unit == "seconds" else inf for part in (stage.warm_up, stage.window))
    if at >= seconds:
        raise UserMistake(
            f"--command would run {at:g} s into the first stage, which lasts {seconds:g} s: give it an earlier time, "
            f"such as --command '{seconds / 3:.0f}s …', or the stage a longer --stage-seconds."
        )


class TimedCommand:
    """Run the command of `text` at its time in the first stage; its output goes to `command.log` in `folder`.

    `start` is the run's. `happened` gets an event when the command begins.
    """

    def __init__(
        self,
        text: str,
        start: Nanoseconds,
        first_stage: Callable[[], Stage],
        happened: Callable[[RunEvent], None],
        folder: Path,
    ) -> None:
        at, self._command = parse(text)
        self._at, self._start = round(at * SECOND), start
        self._first_stage, self._happened, self._log = first_stage, happened, folder / "command.log"
        self._begun = False
        self._greenlet = gevent.spawn(self._run)

    def stop(self) -> None:
        """Cancel the command; if it is running, it continues."""
        gevent.kill(self._greenlet)
        if not self._begun:
            logger.warning("The run ended before its command: `%s` was not run.", self._command)

    def _run(self) -> None:
        while (begins := self._first_stage().start) == UNDECIDED or monotonic_ns() < self._start + begins + self._at:
            gevent.sleep(POLL)
        self._begun = True
        with self._log.open("wb") as log:
            self._happened(RunEvent(monotonic_ns() - self._start, self._command))
            process = subprocess.Popen(
                self._command,
                shell=True,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # A server that the command starts must not have this process's high priority.
                preexec_fn=normal_priority if os.name == "posix" else None,
            )
        if code := process.wait():
            logger.error("The command `%s` ended with exit code %d: see %s", self._command, code, self._log)
