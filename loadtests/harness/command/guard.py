"""Processes that do not outlive this one, even if it is ended by `kill -9`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

GRACE = 90  # seconds from SIGTERM to SIGKILL: more than a server's drain takes, or a run to complete its files
WATCH = """
read -r line
kill -s TERM -- {pid}
seconds=0
while kill -s 0 -- {pid} && [ $seconds -lt {grace} ]; do sleep 1; seconds=$((seconds + 1)); done
kill -s KILL -- {pid}
"""
START = ("/bin/sh", "-c", 'read -r go && exec "$@" < /dev/null', "sh")  # the command keeps the shell's process id


class Guard:
    """A small process that ends the process `pid`, or the process group `-pid`, if this process ends first.

    It reads from a pipe whose other end only this process has: the kernel closes that end when this process ends.
    """

    def __init__(self, pid: int) -> None:
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", WATCH.format(pid=pid, grace=GRACE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C in the terminal must not end it
        )

    def close(self) -> None:
        self._shell.kill()
        self._shell.communicate()


def start_guarded(command: Sequence[str], group: bool = False, **settings: Any) -> tuple[subprocess.Popen[Any], Guard]:
    """Return `Popen(command, **settings)` without an input, and its guard, which the caller closes. With `group`, the
    guard ends the process group that the process leads.

    The process waits for its guard, so that a kill between the two starts leaves no process behind.
    """
    process = subprocess.Popen([*START, *command], stdin=subprocess.PIPE, **settings)
    assert process.stdin is not None
    descriptor = process.stdin.fileno()
    guard = Guard(-process.pid if group else process.pid)
    with suppress(BrokenPipeError):  # the process has ended, which the caller notices
        os.write(descriptor, b"go\n")
    process.stdin.close()
    return process, guard
