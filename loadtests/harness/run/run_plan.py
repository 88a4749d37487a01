"""What all processes of one run must agree on: its name, its folder, its stages, its start, its workload.

One process plans: the only one, or Locust's master. Locust copies the master's custom options to every worker before
that worker's test starts, also to one that joins late; the plan travels among them.
"""

from __future__ import annotations

import time
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from enginebench.records.run import RunMeta
from enginebench.settings.schema import UserMistake
from loadtests.harness.run.host import clock_id
from loadtests.harness.workload.workload import Workload

OPTION = "enginebench_plan"  # under this name it travels


@dataclass(frozen=True, slots=True)
class RunPlan:
    """`start` is nanoseconds on the monotonic clock called `clock`, `start_wall` the same instant by the wall clock.

    `grace` is how many seconds requests in flight get when the run is stopped before its end. `with_keys`: the server
    is the one that the command line names.
    """

    meta: RunMeta
    workload: Workload
    folder: str  # absolute, on the planning host
    clock: str
    start: int
    start_wall: int
    grace: float = 0.0
    with_keys: bool = True

    def start_here(self) -> int:
        """The run's start on this process's own monotonic clock, in nanoseconds.

        Exact on the planner's host; elsewhere as true as the two hosts' wall clocks are to each other.
        """
        if self.clock == clock_id():
            return self.start
        return time.monotonic_ns() - (time.time_ns() - self.start_wall)

    def folder_here(self, runs: Path) -> Path:
        """Return where this process writes: the planner's folder if it is on the same disk, else one of its name."""
        shared = Path(self.folder)
        if (shared / "meta.json").exists():
            return shared
        return (runs / self.meta.run_id).absolute()


def send(plan: RunPlan, options: Namespace) -> None:
    """Put the plan among the options that Locust's master copies to its workers."""
    setattr(options, OPTION, msgspec.json.encode(plan).decode())


def received(options: Namespace) -> RunPlan:
    """The plan that the master sent. Raises `UserMistake` when there is none."""
    sent: Any = getattr(options, OPTION, None)
    if sent is None:
        raise UserMistake("the master sent no plan: it must run the same scenario file as its workers.")
    return msgspec.json.decode(sent, type=RunPlan)
