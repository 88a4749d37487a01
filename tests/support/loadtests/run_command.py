"""`enginebench run` and similar commands, as a process, or in this one with forked servers and load generators."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from enginebench.cli import app
from loadtests.harness.command.guard import Guard, start_guarded
from loadtests.harness.command.server_process import PYTHON
from tests.support import forked
from tests.support.loadtests import locust_process
from tests.support.servers import served

RUN = [sys.executable, "-m", "enginebench", "run", "concurrent"]
ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if name == "ENGINEBENCH_CACHE" or not name.startswith(("ENGINEBENCH", "OPENAI"))
}
STARTERS = (
    "loadtests.harness.command.measured_run",
    "loadtests.harness.command.server_process",
    "enginebench.studies.study.bench_cell",
)
CHECKS = (
    "loadtests.harness.command.engine_checks",
    "loadtests.harness.command.job",
    "enginebench.studies.study.lacking",
)


def start_run(*words: object, group: bool = False) -> subprocess.Popen[str]:
    """Start `enginebench run` as a process whose standard error can be read, with `group` as in a terminal."""
    command = [*RUN[:-1], *map(str, words)]
    return subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, start_new_session=group
    )


def start_forked(command: Sequence[str], group: bool = False, **settings: Any) -> tuple[Any, Guard]:
    """Do what `start_guarded` does; for a command of Python, fork a process that has imported the modules."""
    if tuple(command[:2]) != PYTHON:
        return start_guarded(command, group, **settings)
    held = locust_process.HELD if command[2].endswith(".py") else served.HELD
    with open(os.devnull, "wb") as nowhere:
        output = nowhere if settings["stdout"] == subprocess.DEVNULL else settings["stdout"]
        errors = output if settings["stderr"] == subprocess.STDOUT else settings["stderr"]
        outputs, passed = (output.fileno(), errors.fileno()), settings.get("pass_fds", ())
        environment = settings.get("env", os.environ)
        process = forked.Forked(held, command[2:], Path.cwd(), environment, outputs=outputs, passed=passed)
    return process, Guard(-process.pid if group else process.pid)


def run_forked(command: Sequence[str], **_: Any) -> subprocess.CompletedProcess[str]:
    """Do what `subprocess.run` does with both outputs as text."""
    with TemporaryFile("w+") as output, TemporaryFile("w+") as errors:
        descriptors = (output.fileno(), errors.fileno())
        code = forked.Forked(served.HELD, command[2:], Path.cwd(), os.environ, outputs=descriptors).wait()
        texts = [os.pread(file.fileno(), 1 << 24, 0).decode() for file in (output, errors)]
    return subprocess.CompletedProcess(command, code, *texts)


@contextmanager
def processes_forked() -> Iterator[None]:
    """Fork the servers, load generators, benches and checks that this process starts within the block."""
    with pytest.MonkeyPatch.context() as patch:
        if forked.POSSIBLE:
            for module in STARTERS:
                patch.setattr(f"{module}.start_guarded", start_forked)
            for module in CHECKS:
                patch.setattr(f"{module}.subprocess", SimpleNamespace(run=run_forked))
        yield


def run_here(*words: object, environment: Mapping[str, str] = {}) -> Result:
    """Call `enginebench` with these words in this process, without this machine's settings. `enginebench report`,
    which it would start as a process, is called here too."""

    def report(command: Sequence[str], **_: Any) -> Any:
        code = app(command[4:], standalone_mode=False)
        return subprocess.CompletedProcess(command, code or 0)

    with processes_forked(), pytest.MonkeyPatch.context() as patch:
        for name in os.environ.keys() - ENVIRONMENT.keys():
            patch.delenv(name)
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.setattr(sys, "argv", ["enginebench", *map(str, words)])
        patch.setattr("loadtests.cli.subprocess", SimpleNamespace(run=report))
        return CliRunner().invoke(app, [str(word) for word in words])
