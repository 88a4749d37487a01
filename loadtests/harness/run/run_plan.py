"""The plan that all processes of a run share: its name, folder, stages, start and workload.

One process makes the plan: the only one, or Locust's master. Locust copies the master's custom options, the plan among
them, to every worker before the worker's test starts, including workers that join late.
"""

from __future__ import annotations

import os
import time
from argparse import Namespace
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from enginebench.records.files import META, read_meta
from enginebench.records.run import RunMeta
from enginebench.settings.schema import UserMistake
from loadtests.harness.run.host import clock_id
from loadtests.harness.workload.workload import Workload

OPTION = "enginebench_plan"  # name of the plan among the options


@dataclass(frozen=True, slots=True)
class RunPlan:
    """`start` is nanoseconds on the monotonic clock called `clock`, `start_wall` the same instant on the wall clock.

    `grace` is the seconds for requests in flight when the run is stopped before its end. `with_keys` is true if the
    command line names the server. `processes` are the indices of the processes that make load from the start; Locust
    does not reuse the index of a worker that has left.
    """

    meta: RunMeta
    workload: Workload
    folder: str  # absolute, on the planning host
    clock: str
    start: int
    start_wall: int
    grace: float = 0.0
    with_keys: bool = True
    processes: tuple[int, ...] = (0,)

    def share(self, process: int) -> tuple[int, int] | None:
        """Return the place of a process among those that make load from the start, and their number; `None` if it
        joined later."""
        return (self.processes.index(process), len(self.processes)) if process in self.processes else None

    def start_here(self) -> int:
        """Return the run's start on this process's monotonic clock, in nanoseconds.

        It is exact on the planner's host; on another host, its error is the difference between the wall clocks.
        """
        if self.clock == clock_id():
            return self.start
        return time.monotonic_ns() - (time.time_ns() - self.start_wall)

    def folder_here(self, runs: Path) -> Path:
        """Return the planner's folder if this process has the same disk, else a folder with its name, or with a number
        if that is of an earlier run."""
        shared = Path(self.folder)
        if os.path.exists(shared / META):  # not Path.exists, which fails where it may not look
            return shared
        names = (f"{self.meta.run_id}-{number}" if number > 1 else self.meta.run_id for number in count(1))
        return next(folder for name in names if self._may_hold(folder := (runs / name).absolute()))

    def _may_hold(self, folder: Path) -> bool:
        """Return whether the folder has no run, or this one, of which another worker is here."""
        try:
            return read_meta(folder).started_at == self.meta.started_at
        except FileNotFoundError:
            return True
        except (OSError, ValueError):
            return False


def send(plan: RunPlan, options: Namespace) -> None:
    """Put the plan among the options that Locust's master copies to its workers."""
    setattr(options, OPTION, msgspec.json.encode(plan).decode())


def received(options: Namespace) -> RunPlan:
    """Return the plan that the master sent. Raises `UserMistake` if it sent none."""
    sent: Any = getattr(options, OPTION, None)
    if sent is None:
        raise UserMistake("the master sent no plan: it must run the same scenario file as its workers.")
    return msgspec.json.decode(sent, type=RunPlan)
