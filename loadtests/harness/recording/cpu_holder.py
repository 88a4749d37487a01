"""The other process that uses the most CPU while this one waits for a core.

Linux only. Processes in other containers are not visible.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from loadtests.harness.event_loop import yield_to_io

PROC = Path("/proc")
LINE_BYTES = 4096
AT_A_TIME = 5  # processes read before the event loop has its turn
MIN_CORES = 0.1


@dataclass(frozen=True, slots=True)
class ProcessTime:
    """`name` is the kernel's, of at most 15 characters; `cpu` in seconds since the process began."""

    name: str
    parent: int
    group: int
    cpu: float


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """CPU times of all processes at one moment, by process id."""

    at: float
    processes: Mapping[int, ProcessTime]

    @classmethod
    def read(cls) -> CpuTimes:
        """Read all processes, some ten microseconds each, and let the event loop run in between."""
        at, processes = time.monotonic(), {}
        try:
            entries = os.listdir(PROC)
        except OSError:  # not Linux, or this process has no descriptor left
            entries = []
        for count, entry in enumerate(entries):
            if entry.isdigit() and (process := _read(f"{PROC}/{entry}/stat")) is not None:
                processes[int(entry)] = process
            if count % AT_A_TIME == 0:
                yield_to_io()
        return cls(at, processes)

    def holder_since(self, earlier: CpuTimes) -> tuple[str, float] | None:
        """Return the name and cores of the foreign process that used the most CPU; `None` if none used 0.1 cores."""
        best: tuple[str | None, float] = (None, MIN_CORES)
        for pid in self.processes.keys() & earlier.processes.keys() - self._ours():
            process = self.processes[pid]
            cores = (process.cpu - earlier.processes[pid].cpu) / (self.at - earlier.at)
            if cores > best[1]:
                best = process.name, cores
        name, cores = best
        return None if name is None else (name, cores)

    def _ours(self) -> set[int]:
        """Return this process and its children; if Locust's master forked it, also the master and all its children."""
        me = os.getpid()
        own, parent = self.processes.get(me), self.processes.get(os.getppid())
        forked = own is not None and parent is not None and (own.name, own.group) == (parent.name, parent.group)
        family = {me, os.getppid()} if forked else {me}
        return family | {pid for pid, process in self.processes.items() if process.parent in family}


def _read(stat: str) -> ProcessTime | None:
    """Read a file as in `man 5 proc_pid_stat`; return `None` for a process that has ended. A file object would take
    four times the CPU time, which is scarce here."""
    try:
        file = os.open(stat, os.O_RDONLY)
    except OSError:
        return None
    try:
        line = os.read(file, LINE_BYTES).decode(errors="replace")
    except OSError:
        return None
    finally:
        os.close(file)
    before, _, after = line.rpartition(")")  # a name may have spaces and brackets
    fields = after.split()
    ticks = int(fields[11]) + int(fields[12])  # in user and kernel mode
    return ProcessTime(before.partition("(")[2], int(fields[1]), int(fields[2]), ticks / os.sysconf("SC_CLK_TCK"))
