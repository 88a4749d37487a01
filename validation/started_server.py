"""A server process for the duration of a measurement."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent
STOP_TIMEOUT = 60  # seconds to exit after SIGTERM


@contextmanager
def on_cores(cores: Collection[int]) -> Iterator[None]:
    """Processes started meanwhile keep to these cores. Only Linux binds processes; elsewhere it does nothing."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def started_server(command: Sequence[str]) -> Iterator[tuple[psutil.Process, int]]:
    """The process and its port, once it is ready. `command` prints what `enginebench serve` prints."""
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        ready = next((line for line in process.stderr if " is ready at " in line), None)
        if ready is None:
            raise SystemExit("the server did not start")
        yield psutil.Process(process.pid), int(ready.rsplit(":", 1)[1])
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
