"""Measure a cell without HTTP, by one round of `enginebench bench` in a separate process."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from enginebench.settings.schema import UserMistake
from enginebench.settings.system import last_line
from enginebench.studies.study.grid import StudyEngine, StudyModel, StudyPart, texts_of
from engines.bench.result import read_result
from loadtests.harness.command.command_terminal import Terminal
from loadtests.harness.command.guard import start_guarded
from loadtests.harness.command.run_progress import progress
from loadtests.harness.command.server_process import PYTHON

POLL_INTERVAL = 0.2  # seconds
STOP_TIMEOUT = 5.0  # seconds for the bench to stop its engine


class OutOfTime(Exception):
    """The time budget ran out before the cell was measured."""


class BenchFailed(Exception):
    """The bench failed. The message is one sentence for the user."""


def bench_cell(
    engine: StudyEngine,
    model: StudyModel,
    part: StudyPart,
    document: Path,
    log: Path,
    terminal: Terminal,
    title: str,
    deadline: float,
) -> None:
    """Measure a cell and write its result to `document`.

    Raises `BenchFailed`, or `OutOfTime` when the monotonic clock reaches `deadline`.
    """
    command = [*PYTHON, "-m", "enginebench", "bench", engine.engine, "--model", model.name, "--repeat", "1"]
    command += ["--output", str(document), *(word for option in texts_of(engine.options) for word in ("-o", option))]
    command += [f"--{name.replace('_', '-')}={text}" for name, text in part.setting_texts.items()]
    with log.open("wb") as output, progress(terminal.console, title) as show:
        process, guard = start_guarded(
            command,
            stdout=subprocess.DEVNULL,
            stderr=output,
            start_new_session=True,
        )
        began = time.monotonic()
        try:
            while process.poll() is None:
                time.sleep(POLL_INTERVAL)
                shown = last_line(log.read_text(errors="replace")) or "starting"
                show(None, f"{shown}, {time.monotonic() - began:.0f} s")
                if time.monotonic() >= deadline:
                    raise OutOfTime
                if part.limit is not None and time.monotonic() - began >= part.limit:
                    raise BenchFailed(f"it took longer than {part.limit:g} s, the limit of this part.")
        finally:
            if process.poll() is None:
                _stop(process)
            guard.close()
    if not document.exists():
        line = last_line(log.read_text(errors="replace")) or "it ended without output"
        raise BenchFailed(f"{line} (all output: {log})")
    try:
        failures = read_result(document).failures
    except UserMistake as error:
        raise BenchFailed(str(error)) from None
    if failures:
        raise BenchFailed(failures[0])


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Stop the bench and the engine that it started in the same session."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_TIMEOUT)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
