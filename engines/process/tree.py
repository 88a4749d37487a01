"""Measure memory and CPU time of a process and all processes under it, and end them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

PEAK = re.compile(r"^VmHWM:\s+(\d+) kB", re.MULTILINE)
ENDED = {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}


def own_age() -> float | None:
    """Return the seconds since this process was started, in steps of 10 ms; `None` if the system is not Linux."""
    try:
        started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])  # field 22 of proc(5)
    except OSError:
        return None
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    """Memory in bytes, CPU time in seconds."""

    memory: int
    memory_peak: int
    cpu: float


@dataclass(slots=True)
class ProcessTree:
    """The process group that `pid` leads, and all processes under it. Peaks of ended processes are kept."""

    pid: int
    _peaks: dict[tuple[int, float], int] = field(default_factory=dict)  # by pid and start time
    _cpu: dict[tuple[int, float], float] = field(default_factory=dict)

    def usage(self) -> Usage | None:
        """Return the usage; `None` once the process has ended.

        The peak is the sum of each process's own peak, an upper bound of the sum's peak.
        """
        memory = 0
        try:
            leader = psutil.Process(self.pid)
            members = [leader, *leader.children(recursive=True)]
        except (psutil.Error, OSError):
            return None
        for process in members:
            with contextlib.suppress(psutil.Error, OSError):
                key, resident = (process.pid, process.create_time()), process.memory_info().rss
                memory += resident
                self._peaks[key] = max(self._peaks.get(key, 0), _peak(process.pid) or resident)
                times = process.cpu_times()
                self._cpu[key] = times.user + times.system
        return Usage(memory, sum(self._peaks.values()), sum(self._cpu.values()))

    def kill(self) -> None:
        """End every process of the group, even if its leader has already ended."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def alive(self) -> bool:
        """Return whether a process of the group has not ended: a killed one keeps its memory until the kernel has ended
        it."""
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        return any(map(self._holds_memory, psutil.pids()))  # the group may consist of zombies

    def _holds_memory(self, pid: int) -> bool:
        with contextlib.suppress(psutil.Error, OSError):
            if os.getpgid(pid) == self.pid:
                process = psutil.Process(pid)
                return process.status() not in ENDED or process.num_threads() > 1
        return False


def _peak(pid: int) -> int | None:
    """Return the high-water mark of resident memory, which the kernel keeps; sampling would miss short peaks."""
    with contextlib.suppress(OSError):
        if match := PEAK.search(Path(f"/proc/{pid}/status").read_text()):
            return 1024 * int(match[1])
    return None


class EngineGuard:
    """A small process that kills the engine's process group if this process ends without doing so, as by `kill -9`.

    It reads process groups from a pipe that only this process writes to, and kills the last group at the pipe's end.
    """

    SCRIPT = 'while read -r line; do group=$line; done; [ -n "$group" ] && kill -s KILL -- "-$group"'

    def __init__(self) -> None:
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", self.SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C in the terminal must not end it
        )

    def watch(self, group: int | None) -> None:
        """Guard this process group from now on; with `None`, none."""
        assert self._shell.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._shell.stdin.write(b"%s\n" % (b"" if group is None else b"%d" % group))
            self._shell.stdin.flush()

    def close(self) -> None:
        self.watch(None)
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        self._shell.wait()
