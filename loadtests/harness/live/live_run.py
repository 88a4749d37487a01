"""A run as it goes on, in the process that plans it: the counts of all processes added up, and the views made of them.

Locust's page, the exporter, the terminal (through `live.json`) and the findings on all of them read what is here.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gevent

from enginebench.records.load import Rate
from enginebench.records.run import RunMeta
from enginebench.records.stage import Stage
from enginebench.records.view import StageView, keys_of
from loadtests.harness.event_loop import yield_to_io
from loadtests.harness.live.counts import Key, LiveCounts
from loadtests.harness.live.document import LiveDocument, write_live
from loadtests.harness.live.scales import Scales
from loadtests.harness.live.stage_counts import StageCounts
from loadtests.harness.live.view import view_of

logger = logging.getLogger(__name__)

MESSAGE = "enginebench_counts"  # from Locust's workers to its master
INTERVAL = 1.0  # seconds between two of them, and between two views
COST = 0.02  # share of the time that the views of a run of many stages may take
RECENT = 10  # samples, so seconds, over which the offered rate is taken


class WorkTimer:
    """How long something takes that lets the event loop go on now and then; the `seconds` are its own alone."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = time.monotonic()

    def pause(self) -> None:
        self.seconds += time.monotonic() - self._began
        yield_to_io()
        self._began = time.monotonic()


class LiveRun:
    """`own` are the counts of this process, if it makes load itself; `meta` and `users` return those of the run as they
    are. `start` is the run's own."""

    def __init__(
        self,
        folder: Path,
        start: int,
        scales: Scales,
        own: LiveCounts | None,
        meta: Callable[[], RunMeta],
        users: Callable[[], int],
    ) -> None:
        self.scales = scales
        self.document = LiveDocument()
        self._folder, self._start, self._own, self._meta, self._users = folder, start, own, meta, users
        self._workers: dict[str, LiveCounts] = {}
        self._merged: dict[Key, StageCounts] = {}
        self._views: dict[int, tuple[Stage, StageView]] = {}
        self._changed: set[int] = set()  # stages whose views are old
        self._samples: deque[tuple[float, int]] = deque(maxlen=RECENT + 1)  # when how many requests were scheduled
        self._over = False
        self._greenlet = gevent.spawn(self._run)

    def take(self, worker: str, message: Mapping[str, Any]) -> None:
        """What a worker has counted."""
        changed = self._workers.setdefault(worker, LiveCounts(self.scales)).take(message)
        for key in changed:
            self._merged.pop(key, None)
            self._changed.add(key[0])
        if self._over:
            self.publish()

    def finish(self) -> None:
        """The run is over: what was not settled is counted."""
        gevent.kill(self._greenlet)
        self._over = True
        self.publish()

    @property
    def meta(self) -> RunMeta:
        return self._meta()

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Those that have begun."""
        return self._meta().stages

    @property
    def users(self) -> int:
        return self._users()

    @property
    def scheduled(self) -> int:
        """Requests that were due so far."""
        return sum(process.scheduled for process in self._processes())

    @property
    def in_flight(self) -> int:
        return sum(process.in_flight for process in self._processes())

    @property
    def is_open(self) -> bool:
        """Of the current stage, or else of those planned. An open loop's Locust users only send the arrivals."""
        meta = self._meta()
        loads = [meta.stages[-1].load] if meta.stages else [stage.load for stage in meta.plan]
        return any(isinstance(load, Rate) for load in loads)

    @property
    def recent_offered_rate(self) -> float:
        """Requests scheduled per second, over the last seconds."""
        if len(self._samples) < 2:
            return 0.0
        (began, before), (ended, after) = self._samples[0], self._samples[-1]
        return (after - before) / (ended - began)

    @property
    def keys(self) -> set[Key]:
        """The stages and phases of which something was counted."""
        return {key for process in self._processes() for key in process.stages}

    def counts(self, key: Key) -> StageCounts:
        """Of all processes; not to be changed."""
        processes = self._processes()
        if len(processes) == 1:
            return processes[0].stages.get(key) or StageCounts()
        merged = self._merged.get(key)
        if merged is None:
            merged = self._merged[key] = StageCounts()
            for process in processes:
                if key in process.stages:
                    merged.add(process.stages[key])
        return merged

    def _processes(self) -> Sequence[LiveCounts]:
        return [*([self._own] if self._own is not None else []), *self._workers.values()]

    def _run(self) -> None:
        while True:
            work = WorkTimer()
            self._samples.append((time.monotonic(), self.scheduled))
            self.publish(work.pause)
            work.pause()
            gevent.sleep(max(INTERVAL, work.seconds / COST))

    def publish(self, pause: Callable[[], object] = lambda: None) -> None:
        """Bring the views up to date. `pause` is called between two of them, so that they do not hold up the loop."""
        meta, now = self._meta(), time.monotonic_ns() - self._start
        if self._own is not None:
            self._changed |= {index for index, _ in self._own.changes()}
        keys = keys_of(meta.plan)
        for stage in meta.stages:
            if stage.steady_start is None:
                continue
            known = self._views.get(stage.index)
            if known is None or known[0] != stage or stage.steady_end is None or stage.index in self._changed:
                self._changed.discard(stage.index)
                counts = self.counts((stage.index, "window"))
                self._views[stage.index] = (stage, view_of(stage, keys[stage.index], counts, self.scales, meta, now))
                pause()
        outcomes: dict[str, int] = {}
        for process in self._processes():
            for outcome, count in process.ended.items():
                outcomes[outcome] = outcomes.get(outcome, 0) + count
        views = tuple(view for _, view in self._views.values())
        pause()
        self.document = LiveDocument(t=now, outcomes=outcomes, in_flight=self.in_flight, stages=views)
        try:
            write_live(self._folder, self.document)
        except OSError as error:
            logger.debug("live.json cannot be written: %s", error)
