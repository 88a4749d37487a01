"""A program and everything it starts, watched while it runs: CPU time of the whole tree, and of the machine."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

INTERVAL = 0.25  # seconds between two looks


@dataclass(frozen=True, slots=True)
class Sample:
    """CPU seconds so far, user and system."""

    at: int  # monotonic nanoseconds
    tree: float  # the program and its descendants, those that have ended included
    machine: float  # everything that runs on it


def run_watched(
    command: list[str], env: Mapping[str, str], folder: Path, log: Path, timeout: float
) -> tuple[int, list[Sample]]:
    """Run `command` in `folder`, its output going to `log`; its exit code, and a sample four times a second.

    Raises `TimeoutError` after `timeout` seconds, the program and what it started being killed.
    """
    used: dict[int, float] = {}
    samples = []
    with log.open("wb") as output:
        process = psutil.Popen(
            command,
            env=dict(env),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a program that reads the terminal would stop itself and this process
        )
        give_up = time.monotonic() + timeout
        while process.poll() is None:
            _look(process, used)
            samples.append(Sample(time.monotonic_ns(), sum(used.values()), machine_cpu()))
            if time.monotonic() > give_up:
                for one in [*process.children(recursive=True), process]:
                    one.kill()
                raise TimeoutError(f"it had not ended after {timeout:.0f} s")
            time.sleep(INTERVAL)
    return process.returncode, samples


def _look(process: psutil.Popen, used: dict[int, float]) -> None:
    try:
        tree = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for one in tree:
        with suppress(psutil.NoSuchProcess):
            used[one.pid] = cpu_of(one)


def cpu_of(process: psutil.Process) -> float:
    """Its CPU seconds so far, user and system."""
    return float(sum(process.cpu_times()[:2]))


def machine_cpu() -> float:
    """CPU seconds that all cores together have been busy."""
    times = psutil.cpu_times()
    return sum(times) - times.idle - times.iowait - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)


def between(samples: list[Sample], start: int, end: int, field: str) -> float:
    """How much `field` grew from `start` to `end`, monotonic nanoseconds; straight lines between samples."""
    return _value(samples, end, field) - _value(samples, start, field)


def _value(samples: list[Sample], at: int, field: str) -> float:
    earlier = later = samples[0]
    for sample in samples:
        earlier, later = later, sample
        if sample.at >= at:
            break
    low, high = getattr(earlier, field), getattr(later, field)
    if later.at == earlier.at:
        return float(high)
    share = min(1.0, max(0.0, (at - earlier.at) / (later.at - earlier.at)))
    return float(low + (high - low) * share)
