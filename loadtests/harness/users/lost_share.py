"""The arrivals of an open loop that a lost worker process leaves unsent."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

from enginebench.records.files import blocks_of
from enginebench.records.load import Rate
from enginebench.records.run import LostProcess
from enginebench.records.stage import SECOND, Nanoseconds, Stage
from loadtests.harness.schedule.rates import share_of

T_SCHED = re.compile(rb'"t_sched":(\d+)')


class Share:
    """The arrivals of one of `processes` that were due after `last`, counted as time goes on."""

    def __init__(
        self, index: int, processes: int, last: Nanoseconds, times: Callable[[Stage], Iterator[float]]
    ) -> None:
        self._index, self._processes, self._last, self._times = index, processes, last, times
        self._sources: dict[int, Iterator[tuple[int, float]]] = {}
        self._following: dict[int, Nanoseconds] = {}
        self._missing = 0

    def lost(self, stages: tuple[Stage, ...], now: Nanoseconds) -> LostProcess:
        """What is known of it at this instant of the run, `stages` of which have begun."""
        ends = [later.start for _, later in pairwise(stages)] + [_last_arrival(stage, now) for stage in stages[-1:]]
        for stage, end in zip(stages, ends, strict=True):
            if isinstance(stage.load, Rate) and self._index < self._processes:
                self._count(stage, min(end, now))
        return LostProcess(str(self._index), self._last, self._missing)

    def _count(self, stage: Stage, end: Nanoseconds) -> None:
        source = self._sources.get(stage.index)
        if source is None:
            source = self._sources[stage.index] = share_of(self._times(stage), self._index, self._processes)
            self._following[stage.index] = _next(source, stage)
        while (due := self._following[stage.index]) < end:
            self._missing += due > self._last
            self._following[stage.index] = _next(source, stage)


def last_scheduled(file: Path, otherwise: Nanoseconds) -> Nanoseconds:
    """When the last request in a worker's file was due; `otherwise` where the file lies on another host."""
    try:
        return max((int(at) for block in blocks_of(file) for at in T_SCHED.findall(block)), default=0)
    except FileNotFoundError:
        return otherwise


def _last_arrival(stage: Stage, now: Nanoseconds) -> Nanoseconds:
    """Until when the newest stage has arrivals."""
    ends = [stage.end, stage.steady_end if stage.plan.drains else None]
    return next((end for end in ends if end is not None), now)


def _next(source: Iterator[tuple[int, float]], stage: Stage) -> Nanoseconds:
    _, seconds = next(source, (0, None))
    return 2**63 if seconds is None else stage.start + round(seconds * SECOND)
