"""The limits of this process: its connections, and its priority."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from math import ceil
from pathlib import Path

from enginebench.records.load import Users
from enginebench.records.stage import StagePlan
from enginebench.settings.schema import UserMistake
from enginebench.settings.system import raise_descriptor_limit

SPARE = 100  # descriptors for files, logs, Locust's page and its workers
PREFERRED_NICENESS = -10


def check_users_fit(plan: Sequence[StagePlan], processes: int) -> None:
    """Raise `UserMistake` if this process could not open a connection for each of its users."""
    limit = raise_descriptor_limit()
    users = max((stage.load.count for stage in plan if isinstance(stage.load, Users)), default=0)
    needed = ceil(users / processes) + SPARE
    if limit is None or needed <= limit:
        return
    where = "one process" if processes == 1 else f"{processes} processes"
    enough = ceil(users / (limit - SPARE)) if limit > SPARE else None
    more = "" if enough is None else f", or use --processes {enough}"
    raise UserMistake(
        f"{users} users in {where} need {needed} open files each, and this system's hard limit is {limit} "
        f"(ulimit -Hn): raise it{more}."
    )


def raise_priority() -> int | None:
    """Ask the system to prefer this process, and return its niceness, which only root or CAP_SYS_NICE can change;
    `None` on a system without niceness."""
    if sys.platform == "win32":
        return None
    with suppress(OSError):
        if os.getpriority(os.PRIO_PROCESS, 0) > PREFERRED_NICENESS:
            os.setpriority(os.PRIO_PROCESS, 0, PREFERRED_NICENESS)
        # With autogroups, niceness counts only within a session; between sessions, the group's niceness counts.
        Path("/proc/self/autogroup").write_text(str(PREFERRED_NICENESS))
    return os.getpriority(os.PRIO_PROCESS, 0)


def normal_priority() -> None:
    """Give a child process the normal priority, before it becomes another program."""
    os.setpriority(os.PRIO_PROCESS, 0, max(0, os.getpriority(os.PRIO_PROCESS, 0)))
