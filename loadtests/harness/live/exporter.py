"""The load test's own metrics for Prometheus, of all its processes, served by the one that plans the run.

locust -f loadtests/concurrent.py --headless &  curl http://127.0.0.1:9646/metrics
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from loadtests.harness.live.counts import PHASES
from loadtests.harness.live.endpoint import Endpoint
from loadtests.harness.live.live_run import LiveRun
from loadtests.harness.live.prometheus import Now, Place, RunFacts, families
from loadtests.harness.live.stage_counts import StageCounts
from records.slo import RunObjectives
from records.view import keys_of
from settings.schema import Address

logger = logging.getLogger(__name__)

MOST_STAGES = 50  # labels; a search may have more stages, which then share one label
OTHER_STAGES = "other"


class Exporter:
    """Of one run. `started` is when it began, in seconds since 1970."""

    def __init__(self, live: LiveRun, started: float) -> None:
        self._live, self._started = live, started
        self._endpoint: Endpoint | None = None

    def serve(self, address: Address) -> None:
        """Raises `OSError` where the address cannot be listened on."""
        self._endpoint = Endpoint(*address, self._families)
        logger.info("This load test's metrics are at %s", self._endpoint.address)

    def close(self) -> None:
        """Another run takes its place."""
        if self._endpoint is not None:
            self._endpoint.close()

    def _families(self) -> Iterator[str]:
        live, meta = self._live, self._live.meta
        begun = meta.stages
        keys = keys_of(meta.plan)
        labels = {
            stage.index: keys[stage.index].label if stage.index < MOST_STAGES else OTHER_STAGES for stage in begun
        }
        # A stage counts from 0 on: of a series that begins with more, Prometheus would not see the first requests.
        counts = {Place(label, phase): StageCounts() for label in labels.values() for phase in PHASES}
        for index, phase in sorted(live.keys):
            place = Place(labels.get(index, OTHER_STAGES), phase)
            counts.setdefault(place, StageCounts()).add(live.counts((index, phase)))
        now = Now(
            stage=labels[begun[-1].index] if begun else "",
            stage_index=begun[-1].index if begun else 0,
            users=None if live.is_open else live.users,
            in_flight=live.in_flight,
            offered=live.offered if live.is_open else None,
        )
        facts = RunFacts(
            run=meta.run_id,
            server=meta.url,
            common={
                "scenario": meta.scenario,
                "engine": meta.label,
                "model": meta.model or "unknown",
            },
            started=self._started,
            objectives=RunObjectives.of(meta.workload),
        )
        return families(facts, now, counts, live.scales, live.document.stages)
