"""Start programs without importing their modules again: a process that has imported them forks for each start.

Importing Locust or FastAPI takes more CPU than the rest of many tests. Our own modules may be imported in advance if
that only defines names. The forked process imports the others, and runs the program as its command does. The
commands themselves are started by tests/loadtests/test_standard_names.py, tests/loadtests/command,
tests/servers/test_cli.py and others.
"""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any

POSSIBLE = sys.platform == "linux"
WIDTH = 10  # characters of a process id, or an exit code


class Forked:
    """The part of `subprocess.Popen` that the tests use.

    `program` is a script, or a module after `-m`. The modules `held` are imported in advance. Standard error, and with
    `merged` also standard output, can be read here, unless the process has `outputs`, the descriptors for both. It
    inherits the descriptors `passed` under the same numbers.
    """

    def __init__(
        self,
        held: Sequence[str],
        program: Sequence[str],
        cwd: Path,
        environment: Mapping[str, str],
        merged: bool = False,
        outputs: tuple[int, int] | None = None,
        passed: Sequence[int] = (),
    ) -> None:
        self._command = [str(part) for part in program]
        said, to_us = os.pipe()
        self._status, to_status = os.pipe()
        start = {"program": self._command, "cwd": str(cwd), "environment": dict(environment), "passed": list(passed)}
        sent = [*(outputs or (to_us if merged else 1, to_us)), to_status, *passed]
        socket.send_fds(_server(*held)[0], [json.dumps(start).encode()], sent)
        for fd in (to_us, to_status):
            os.close(fd)
        said_text: IO[str] = os.fdopen(said, "r", encoding="utf-8", errors="replace")
        self.stdout: IO[str] | None = said_text if merged else None
        self.stderr: IO[str] | None = None if merged else said_text
        self._heard = b""
        self.returncode: int | None = None
        self.pid = self._next_status(None)

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self.returncode = self._next_status(timeout)
            os.close(self._status)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Return the output up to the end of the process. Can be called again after a timeout."""
        said = self.stdout or self.stderr
        assert said is not None
        deadline = None if timeout is None else time.monotonic() + timeout
        while data := self._read(said.fileno(), 65536, deadline):
            self._heard += data
        self.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
        return self._heard.decode(errors="replace"), ""

    def send_signal(self, sent: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(self.pid, sent)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _next_status(self, timeout: float | None) -> int:
        return int(self._read(self._status, WIDTH, None if timeout is None else time.monotonic() + timeout))

    def _read(self, fd: int, most: int, deadline: float | None) -> bytes:
        ready = select.poll()
        ready.register(fd, select.POLLIN)
        patience = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not ready.poll(None if patience is None else 1000 * patience):
            raise subprocess.TimeoutExpired(self._command, patience or 0.0)
        return os.read(fd, most)


@cache
def _server(*held: str) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start the process that forks. It ends when its socket closes, at the end of this process."""
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-P", __file__, str(far.fileno()), *held]
    with far:
        lasting = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # a test may set it
        return near, subprocess.Popen(
            command, stdin=subprocess.DEVNULL, pass_fds=[far.fileno()], start_new_session=True, env=lasting
        )


def serve(control: socket.socket, held: Sequence[str]) -> None:
    """Fork for each message, in the process that has imported the modules, until all senders have ended."""
    close, fork, waitpid, handle = os.close, os.fork, os.waitpid, signal.signal  # gevent replaces them
    for name in held:
        importlib.import_module(name)
    handle(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, fds, _, _ = socket.recv_fds(control, 1 << 20, 8)
        if not message:
            return
        if fork() == 0:
            break
        for fd in fds:
            close(fd)
    control.close()
    output, errors, status, *passed = fds
    handle(signal.SIGCHLD, signal.SIG_DFL)
    if pid := fork():  # this process reports how the program ends
        for fd in (output, errors, *passed):
            close(fd)
        with suppress(OSError):
            os.write(status, b"%*d" % (WIDTH, pid))
            os.write(status, b"%*d" % (WIDTH, os.waitstatus_to_exitcode(waitpid(pid, 0)[1])))
        os._exit(0)
    os.setsid()
    start = json.loads(message)
    wanted = [1, 2, *start.pop("passed")]
    # Copy them above all target numbers first, so that no copy overwrites a descriptor that is still to be copied.
    copies = [fcntl.fcntl(fd, fcntl.F_DUPFD, max(wanted) + 1) for fd in (output, errors, *passed)]
    for fd in fds:
        close(fd)
    for copy, fd in zip(copies, wanted, strict=True):
        os.dup2(copy, fd)
        close(copy)
    _run(**start)


def _run(program: list[str], cwd: str, environment: dict[str, str]) -> None:
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", 1, closefd=False)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    if gevent := sys.modules.get("gevent"):
        any_gevent: Any = gevent
        any_gevent.reinit()
    sys.path[:0] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    if program[0] == "-m":
        sys.argv = program[1:]
        sys.path.insert(0, cwd)
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = program
        sys.path.insert(0, str(Path(program[0]).parent))
        runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:])
