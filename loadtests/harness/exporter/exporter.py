"""The load test's own metrics for Prometheus, merged over all its processes and served by the one that plans the run.

    locust -f loadtests/concurrent.py --headless &  curl http://127.0.0.1:9646/metrics

They are for watching: they count whole stages, warm-up included. What a report says is computed from the records.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import gevent

from loadtests.harness.exporter.counts import Buckets, Counts, StageCounts, together
from loadtests.harness.exporter.page import Page
from loadtests.harness.exporter.text import Now, RunFacts, families
from loadtests.harness.run.plan import RunPlan
from records.load import Rate
from records.slo import RunObjectives
from records.stage import SECOND, Stage
from settings.schema import Address

logger = logging.getLogger(__name__)

MESSAGE = "enginebench_counts"  # from Locust's workers to its master
INTERVAL = 1.0  # seconds between two of them, and between two samples of the offered rate
RECENT = 10  # samples over which it is taken
MOST_STAGES = 50  # labels; a search may have more stages, which then share one label
OTHER_STAGES = "other"


class Exporter:
    """Of one run, in the process that plans it; Locust's page reads its `total` too. `own` are the counts of this
    process, if it makes load itself; `stages` and `users` return those of the run."""

    def __init__(
        self,
        plan: RunPlan,
        buckets: Buckets,
        own: Counts | None,
        stages: Callable[[], tuple[Stage, ...]],
        users: Callable[[], int],
    ) -> None:
        self._facts, self._buckets, self._own = facts_of(plan), buckets, own
        self._stages, self._users = stages, users
        self._plan = plan.meta.plan
        self._workers: dict[str, Counts] = {}
        self._samples: deque[tuple[float, int]] = deque(maxlen=RECENT + 1)  # when how many requests were scheduled
        self._page: Page | None = None
        self._greenlet: gevent.Greenlet[..., None] | None = None

    def serve(self, address: Address) -> None:
        """Raises `OSError` where the address cannot be listened on."""
        self._page = Page(*address, self._families)
        logger.info("This load test's metrics are at %s", self._page.address)
        self._greenlet = gevent.spawn(self._sample_offered)

    def take(self, worker: str, message: Mapping[str, Any]) -> None:
        self._workers.setdefault(worker, Counts(self._buckets)).take(message)

    def close(self) -> None:
        """Another run takes its place."""
        if self._page is not None and self._greenlet is not None:
            gevent.kill(self._greenlet)
            self._page.close()

    def _processes(self) -> list[Counts]:
        return [*([self._own] if self._own is not None else []), *self._workers.values()]

    def _sample_offered(self) -> None:
        while True:
            self._samples.append((time.monotonic(), sum(one.scheduled for one in self._processes())))
            gevent.sleep(INTERVAL)

    @property
    def total(self) -> Counts:
        return together(self._processes(), self._buckets)

    def _families(self) -> Iterator[str]:
        total, begun = self.total, self._stages()
        labels = {stage.index: stage.label if stage.index < MOST_STAGES else OTHER_STAGES for stage in begun}
        # A stage counts from 0 on: of a series that begins with more, Prometheus would not see the first requests.
        by_label = {label: StageCounts(self._buckets.empty()) for label in labels.values()}
        for index, counts in sorted(total.stages.items()):
            by_label.setdefault(labels.get(index, OTHER_STAGES), StageCounts(self._buckets.empty())).add(counts)
        is_open = self._is_open(begun)
        now = Now(
            stage=labels[begun[-1].index] if begun else "",
            stage_index=begun[-1].index if begun else 0,
            users=None if is_open else self._users(),
            in_flight=total.in_flight,
            offered=self._offered() if is_open else None,
        )
        return families(self._facts, now, by_label, self._buckets)

    def _is_open(self, begun: Sequence[Stage]) -> bool:
        """Of the current stage, or else of those planned. An open loop's Locust users only send the arrivals."""
        loads = [begun[-1].load] if begun else [stage.load for stage in self._plan]
        return any(isinstance(load, Rate) for load in loads)

    def _offered(self) -> float:
        """Requests scheduled per second."""
        if len(self._samples) < 2:
            return 0.0
        (began, before), (ended, after) = self._samples[0], self._samples[-1]
        return (after - before) / (ended - began)


def facts_of(plan: RunPlan) -> RunFacts:
    """The labels of a run: each has one value in it."""
    meta = plan.meta
    return RunFacts(
        run=meta.run_id,
        server=meta.url,
        common={"scenario": meta.scenario, "engine": meta.label, "model": meta.model or "unknown"},
        started=plan.start_wall / SECOND,
        objectives=RunObjectives.of(meta.workload),
    )
