"""Which other process holds the CPUs while this one waits for one: what to move away when a machine is too busy.

Linux only: elsewhere, and in other containers, no other process is seen.
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
LEAST = 0.1  # cores


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
        """Cooperatively: some ten microseconds for each process."""
        at, processes = time.monotonic(), {}
        for count, entry in enumerate(_entries()):
            if entry.isdigit() and (process := _read(f"{PROC}/{entry}/stat")) is not None:
                processes[int(entry)] = process
            if count % AT_A_TIME == 0:
                yield_to_io()
        return cls(at, processes)

    def holder_since(self, earlier: CpuTimes) -> tuple[str, float] | None:
        """Name and cores of the process, none of ours, that used the most; `None` where none used a tenth of a core."""
        best: tuple[str | None, float] = (None, LEAST)
        for pid in self.processes.keys() & earlier.processes.keys() - self._ours():
            process = self.processes[pid]
            cores = (process.cpu - earlier.processes[pid].cpu) / (self.at - earlier.at)
            if cores > best[1]:
                best = process.name, cores
        name, cores = best
        return None if name is None else (name, cores)

    def _ours(self) -> set[int]:
        """This process, and where Locust's master forked it, that and its other workers."""
        me = os.getpid()
        own, parent = self.processes.get(me), self.processes.get(os.getppid())
        forked = own is not None and parent is not None and (own.name, own.group) == (parent.name, parent.group)
        family = {me, os.getppid()} if forked else {me}
        return family | {pid for pid, process in self.processes.items() if process.parent in family}


def _entries() -> list[str]:
    """None elsewhere than on Linux, and where this process has no descriptor left."""
    try:
        return os.listdir(PROC)
    except OSError:
        return []


def _read(stat: str) -> ProcessTime | None:
    """`man 5 proc_pid_stat`; `None` for a process that has ended. Without a file object, which takes four times the
    CPU time: this is done where CPUs are scarce."""
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
