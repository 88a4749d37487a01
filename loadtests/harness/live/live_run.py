"""The live state of a run in the planning process: the counts of all processes added up, and the views of the stages.

Locust's page, the exporter, and the terminal (through `live.json`) read it.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gevent

from enginebench.records.load import Rate
from enginebench.records.run import RunMeta
from enginebench.records.stage import Stage
from enginebench.records.view import StageView, keys_of
from loadtests.harness.event_loop import yield_to_io
from loadtests.harness.live.buckets import CountedMetrics
from loadtests.harness.live.counts import Counts, LiveCounts
from loadtests.harness.live.live_json import LiveDocument, write_live
from loadtests.harness.live.live_view import view_of

logger = logging.getLogger(__name__)

MESSAGE = "enginebench_counts"  # from Locust's workers to its master
INTERVAL = 1.0  # seconds between two messages, and between two views
RECENT = 10  # samples, so seconds, over which the offered rate is computed


class LiveRun:
    """`own` are the counts of this process, if it makes load itself; `meta` and `users` return the run's current
    metadata and number of users."""

    def __init__(
        self,
        folder: Path,
        start: int,
        metrics: CountedMetrics,
        own: LiveCounts | None,
        meta: Callable[[], RunMeta],
        users: Callable[[], int],
    ) -> None:
        self.metrics, self.meta, self.users = metrics, meta, users
        self.document = LiveDocument()
        self._folder, self._start, self._own = folder, start, own
        self._workers: dict[str, LiveCounts] = {}
        self._views: dict[int, tuple[Stage, StageView]] = {}
        self._changed: set[int] = set()  # stages whose views are outdated
        self._samples: deque[tuple[float, int]] = deque(maxlen=RECENT + 1)  # times, and requests scheduled by then
        self._over = False
        self._greenlet = gevent.spawn(self._run)

    def take(self, worker: str, message: Mapping[str, Any]) -> None:
        """Take a worker's counts."""
        self._changed |= self._workers.setdefault(worker, LiveCounts(self.metrics)).take(message)
        if self._over:
            self.publish()

    def finish(self) -> None:
        """Publish the last views, when all requests have been counted."""
        gevent.kill(self._greenlet)
        self._over = True
        self.publish()

    @property
    def in_flight(self) -> int:
        return sum(process.in_flight for process in self._processes())

    @property
    def is_open(self) -> bool:
        """Return whether the current stage is an open loop, whose users only send the arrivals. Before the first stage,
        return whether any planned one is."""
        meta = self.meta()
        loads = [meta.stages[-1].load] if meta.stages else [stage.load for stage in meta.plan]
        return any(isinstance(load, Rate) for load in loads)

    @property
    def recent_offered_rate(self) -> float:
        """Return the requests scheduled per second over the last ten seconds."""
        if len(self._samples) < 2:
            return 0.0
        (began, before), (ended, after) = self._samples[0], self._samples[-1]
        return (after - before) / (ended - began)

    def counts(self, stage: int | None = None) -> Counts:
        """Add up all processes, in the window of the stage with this index or in the whole run. Return a copy."""
        total = Counts()
        for process in self._processes():
            counts = process.run if stage is None else process.stages.get(stage)
            if counts is not None:
                total.add(counts)
        return total

    def publish(self, between: Callable[[], object] = lambda: None) -> None:
        """Bring the views up to date, and call `between` after each."""
        meta, now = self.meta(), time.monotonic_ns() - self._start
        if self._own is not None:
            self._changed |= self._own.changes()
        keys = keys_of(meta.plan)
        for stage in meta.stages:
            before, _ = self._views.get(stage.index, (None, None))
            if stage.steady_start is not None and (
                before != stage or stage.steady_end is None or stage.index in self._changed
            ):
                self._changed.discard(stage.index)
                view = view_of(stage, keys[stage.index], self.counts(stage.index), self.metrics, meta, now)
                self._views[stage.index] = stage, view
                between()
        views = tuple(view for _, view in self._views.values())
        outcomes = {outcome: count for outcome, count in self.counts().outcomes.items() if count}
        self.document = LiveDocument(t=now, outcomes=outcomes, in_flight=self.in_flight, stages=views)
        try:
            write_live(self._folder, self.document)
        except OSError as error:
            logger.debug("live.json cannot be written: %s", error)

    def _processes(self) -> list[LiveCounts]:
        return [*([self._own] if self._own is not None else []), *self._workers.values()]

    def _run(self) -> None:
        while True:
            self._samples.append((time.monotonic(), sum(process.scheduled for process in self._processes())))
            self.publish(yield_to_io)
            gevent.sleep(INTERVAL)
