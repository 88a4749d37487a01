"""What all processes of one run must agree on: its name, its folder, its stages, its start, its workload.

One process plans: the only one, or Locust's master. Locust copies the master's custom options to every worker before
that worker's test starts, also to one that joins late; the plan travels among them. Clocks are another matter: a stage
begins at the same instant everywhere, but no stamp of one host is ever compared with a stamp of another.
"""

from __future__ import annotations

import time
from argparse import Namespace
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from loadtests.harness.run.host import clock_id
from loadtests.harness.workload.workload import Workload
from records.record import RunMeta

OPTION = "enginebench_plan"  # under this name it travels


@dataclass(frozen=True, slots=True)
class Plan:
    """`start` is nanoseconds on the monotonic clock called `clock`; `elapsed` is the run's age when this was sent.

    `grace` is how many seconds requests in flight get when the run is stopped before its end.
    """

    meta: RunMeta
    workload: Workload
    folder: str  # absolute, on the planning host
    clock: str
    start: int
    grace: float = 0.0
    elapsed: int = 0

    def start_here(self) -> int:
        """The run's start on this process's own monotonic clock, in nanoseconds.

        On the planner's host that is exact. Elsewhere it is right to within the time that the plan took to arrive.
        """
        if self.clock == clock_id():
            return self.start
        return time.monotonic_ns() - self.elapsed

    def folder_here(self, runs: Path) -> Path:
        """Where this process writes: the planner's folder when it is on the same disk, else one of the same name."""
        shared = Path(self.folder)
        if (shared / "meta.json").exists():
            return shared
        return (runs / self.meta.run_id).absolute()


def send(plan: Plan, options: Namespace) -> None:
    """Put the plan among the options that Locust's master copies to its workers."""
    elapsed = time.monotonic_ns() - plan.start
    setattr(options, OPTION, msgspec.to_builtins(replace(plan, elapsed=elapsed)))


def received(options: Namespace) -> Plan:
    """The plan that the master sent. Raises `ValueError` with a sentence when there is none."""
    sent: Any = getattr(options, OPTION, None)
    if sent is None:
        raise ValueError("the master sent no plan: it must run the same scenario file as its workers.")
    return msgspec.convert(sent, Plan)
