"""The load generator under test: a command with blanks for the server's address and a folder."""

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
INTERVAL = 0.05  # seconds between polls of the load generator
STDERR = 2


def check_command(command: Sequence[str]) -> None:
    """Raise `UserMistake` if the command cannot be started or does not name the server."""
    if not any(blank in word for word in command for blank in ("{url}", "{port}")):
        raise UserMistake("the command does not name the server: write {url} where its address belongs.")
    if which(command[0]) is None:
        raise UserMistake(f"there is no command `{command[0]}` here: install it, or give its path.")


def fill(word: str, blanks: Mapping[str, str]) -> str:
    """Replace `{url}`, `{port}` and `{folder}`; other braces, such as in JSON, stay."""
    for name, value in blanks.items():
        word = word.replace(f"{{{name}}}", value)
    return word


def tool_name(command: Sequence[str]) -> str:
    """Return the name of the program, even if `env` or Python starts it."""
    names = [Path(word).name for word in command if not word.startswith("-") and "=" not in word]
    return next((name for name in names if name.rstrip("0123456789.") not in {"env", "python"}), command[0])


def run_tool(command: Sequence[str]) -> int:
    """Run the tool, end all its processes, and return its exit code.

    Its output goes to standard error, because standard output is for the document.
    """
    process, guard = start_guarded(command, stdout=STDERR, start_new_session=True)
    try:
        while process.poll() is None:  # Polars keeps Ctrl-C from interrupting a plain wait
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
