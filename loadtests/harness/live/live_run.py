"""A run as it goes on, in the process that plans it: the counts of all processes added up, and the views made of them.

Locust's page, the exporter, and the terminal (through `live.json`) read what is here.
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
INTERVAL = 1.0  # seconds between two of them, and between two views
RECENT = 10  # samples, so seconds, over which the offered rate is taken


class LiveRun:
    """`own` are the counts of this process, if it makes load itself; `meta` and `users` return those of the run as they
    are. `start` is the run's own."""

    def __init__(
        self,
        folder: Path,
        start: int,
        metrics: CountedMetrics,
        own: LiveCounts | None,
        meta: Callable[[], RunMeta],
        users: Callable[[], int],
    ) -> None:
        self.metrics = metrics
        self.document = LiveDocument()
        self._folder, self._start, self._own, self._meta, self._users = folder, start, own, meta, users
        self._workers: dict[str, LiveCounts] = {}
        self._views: dict[int, tuple[Stage, StageView]] = {}
        self._changed: set[int] = set()  # stages whose views are old
        self._samples: deque[tuple[float, int]] = deque(maxlen=RECENT + 1)  # when how many requests were scheduled
        self._over = False
        self._greenlet = gevent.spawn(self._run)

    def take(self, worker: str, message: Mapping[str, Any]) -> None:
        """Take what a worker has counted."""
        self._changed |= self._workers.setdefault(worker, LiveCounts(self.metrics)).take(message)
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
        """Whether the current stage is an open loop, else one of the plan. Its users only send the arrivals."""
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

    def counts(self, stage: int | None = None) -> Counts:
        """Add up all processes, in the window of the stage with this index or in the whole run. Return a copy."""
        total = Counts()
        for process in self._processes():
            counts = process.run if stage is None else process.stages.get(stage)
            if counts is not None:
                total.add(counts)
        return total

    def publish(self, between: Callable[[], object] = lambda: None) -> None:
        """Bring the views up to date. `between` is called between two of them."""
        meta, now = self._meta(), time.monotonic_ns() - self._start
        if self._own is not None:
            self._changed |= self._own.changes()
        keys = keys_of(meta.plan)
        for stage in meta.stages:
            known = self._views.get(stage.index)
            if stage.steady_start is not None and (
                known is None or known[0] != stage or stage.steady_end is None or stage.index in self._changed
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
            self._samples.append((time.monotonic(), self.scheduled))
            self.publish(yield_to_io)
            gevent.sleep(INTERVAL)
