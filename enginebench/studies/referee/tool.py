"""The load generator that is measured: a command with blanks for the server's address and a folder."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from shutil import which

from enginebench.settings.schema import UserMistake
from loadtests.harness.command.guard import start_guarded

GRACE = 10.0  # seconds from SIGTERM to SIGKILL
INTERVAL = 0.05  # seconds from one look at the load generator to the next
STDERR = 2


def check_command(command: Sequence[str]) -> None:
    """Raises `UserMistake` if the command cannot be started or does not name the server."""
    if not any(blank in word for word in command for blank in ("{url}", "{port}")):
        raise UserMistake("the command does not name the server: write {url} where its address belongs.")
    if which(command[0]) is None:
        raise UserMistake(f"there is no command `{command[0]}` here: install it, or give its path.")


def fill(word: str, blanks: Mapping[str, str]) -> str:
    """Replace `{url}`, `{port}` and `{folder}`; other braces, such as those of JSON, stay."""
    for name, value in blanks.items():
        word = word.replace(f"{{{name}}}", value)
    return word


def tool_name(command: Sequence[str]) -> str:
    """Return the name of the program that `env` or Python runs, if they are the first words, else of the first word."""
    names = [Path(word).name for word in command if not word.startswith("-") and "=" not in word]
    return next((name for name in names if name.rstrip("0123456789.") not in {"env", "python"}), command[0])


def run_tool(command: Sequence[str]) -> int:
    """Return the exit code. All processes of the tool are ended.

    Standard output is for the document, so the tool's goes to standard error.
    """
    process, guard = start_guarded(command, stdout=STDERR, start_new_session=True)
    try:
        while process.poll() is None:  # Ctrl-C would not interrupt a plain wait: Polars has it go on after signals
            time.sleep(INTERVAL)
        return process.returncode
    finally:
        try:
            _signal_group(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE)
        finally:
            _signal_group(process.pid, signal.SIGKILL)
            process.wait()
            guard.close()


def _signal_group(leader: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, number)
