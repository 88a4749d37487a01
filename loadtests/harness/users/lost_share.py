"""The arrivals of an open loop that a lost worker process leaves unsent."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path

from enginebench.records.files import blocks_of
from enginebench.records.load import Rate
from enginebench.records.run import LostProcess
from enginebench.records.stage import SECOND, Nanoseconds, Stage
from loadtests.harness.schedule.rates import share_of

T_SCHED = re.compile(rb'"t_sched":(\d+)')


def last_scheduled(file: Path, otherwise: Nanoseconds) -> Nanoseconds:
    """Return when the last request in a worker's file was due, or `otherwise` if the file is on another host."""
    try:
        return max((int(at) for block in blocks_of(file) for at in T_SCHED.findall(block)), default=0)
    except FileNotFoundError:
        return otherwise


def missing_arrivals(
    lost: LostProcess,
    processes: int,
    stages: Sequence[Stage],
    times: Callable[[Stage], Iterator[float]],
    now: Nanoseconds,
) -> int:
    """Count the arrivals of the process's share that were due after its last one, and until `now`."""
    index, missing = int(lost.worker), 0
    for stage, following in zip(stages, [*stages[1:], None], strict=True):
        if isinstance(stage.load, Rate) and index < processes:
            last = stage.steady_end if stage.plan.drains else stage.end
            end = min(now, following.start if following is not None else last or now)
            due = (stage.start + round(seconds * SECOND) for _, seconds in share_of(times(stage), index, processes))
            missing += sum(at > lost.t for at in takewhile(lambda at, end=end: at < end, due))  # type: ignore[misc]
    return missing
