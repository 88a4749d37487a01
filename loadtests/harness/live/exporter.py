"""The load test's own metrics for Prometheus, of all its processes, served by the one that plans the run.

locust -f loadtests/concurrent.py --headless &  curl http://127.0.0.1:9646/metrics
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import gevent
from gevent.pywsgi import WSGIServer

from loadtests.harness.event_loop import yield_to_io
from loadtests.harness.live.counts import PHASES
from loadtests.harness.live.live_run import LiveRun
from loadtests.harness.live.prometheus import CONTENT_TYPE, Now, RunLabels, StagePhase, families
from loadtests.harness.live.stage_counts import StageCounts
from records.slo import RunObjectives
from records.view import keys_of
from settings.schema import Address

logger = logging.getLogger(__name__)

MISSED_SCRAPES = 2  # intervals without one, after which Prometheus is taken to be gone
SLOW_SCRAPE = 2.0  # seconds that the interval may be exceeded by on a busy machine
MOST_STAGES = 50  # labels; a search may have more stages, which then share one label
OTHER_STAGES = "other"


class Exporter:
    """Of one run. `started` is when it began, in seconds since 1970."""

    def __init__(self, live: LiveRun, started: float) -> None:
        self._live, self._started = live, started
        self._server: MetricsServer | None = None

    def serve(self, address: Address) -> None:
        """Raises `OSError` where the address cannot be listened on."""
        self._server = MetricsServer(*address, self._families)
        logger.info("This load test's metrics are at %s", self._server.address)

    def wait_for_scrape(self, most: float) -> None:
        """Where a Prometheus has been scraping, it sees how the run ended; this takes `most` seconds at most."""
        if self._server is not None:
            self._server.wait_for_scrape(most)

    def close(self) -> None:
        """Another run takes its place."""
        if self._server is not None:
            self._server.close()

    def _families(self) -> Iterator[str]:
        live, meta = self._live, self._live.meta
        begun = meta.stages
        keys = keys_of(meta.plan)
        labels = {
            stage.index: keys[stage.index].label if stage.index < MOST_STAGES else OTHER_STAGES for stage in begun
        }
        # A stage counts from 0 on: of a series that begins with more, Prometheus would not see the first requests.
        counts = {StagePhase(label, phase): StageCounts() for label in labels.values() for phase in PHASES}
        for index, phase in sorted(live.keys):
            place = StagePhase(labels.get(index, OTHER_STAGES), phase)
            counts.setdefault(place, StageCounts()).add(live.counts((index, phase)))
        now = Now(
            labels[begun[-1].index] if begun else "",
            {
                "stage_index": begun[-1].index if begun else 0,
                "users": None if live.is_open else live.users,
                "in_flight": live.in_flight,
                "recent_offered_rate": live.recent_offered_rate if live.is_open else None,
            },
        )
        facts = RunLabels(
            server=meta.url,
            common={
                "run": meta.run_id,
                "scenario": meta.scenario,
                "engine": meta.label,
                "model": meta.model or "unknown",
            },
            started=self._started,
            objectives=RunObjectives.of(meta.workload),
        )
        views = {view.label: view for view in live.document.stages}  # a longer one in the place of a brief one
        return families(facts, now, counts, live.scales, list(views.values())[:MOST_STAGES])


class MetricsServer:
    """Serves what `families` gives, on `host`:`port`. Raises `OSError` where that cannot be listened on."""

    def __init__(self, host: str, port: int, families: Callable[[], Iterable[str]]) -> None:
        self._families = families
        self._scrapes: deque[float] = deque(maxlen=2)  # when the last ones began
        self._answered = -math.inf  # when the last one that was answered began
        self._server = WSGIServer((host, port), self._answer, log=None, error_log=None)
        self._server.start()

    @property
    def address(self) -> str:
        host, port = str(self._server.server_host), self._server.server_port
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"

    def _answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] != "/metrics" or environ["REQUEST_METHOD"] != "GET":
            start_response("404 Not Found", [("Content-Type", "text/plain")])
            return [b"The metrics are at /metrics.\n"]
        start_response("200 OK", [("Content-Type", CONTENT_TYPE)])
        return self._parts()

    def _parts(self) -> Iterator[bytes]:
        """A family at a time: between two of them the loop reads answers and sends requests."""
        began = time.monotonic()
        self._scrapes.append(began)
        for part in self._families():
            if part:
                yield part.encode()
            yield_to_io()
        self._answered = began

    def wait_for_scrape(self, most: float) -> None:
        """Until a scrape that begins from now on is answered, where there have been regular ones; `most` seconds at
        most. One that is being answered may hold counts of before."""
        if len(self._scrapes) < 2:
            return
        now, interval = time.monotonic(), self._scrapes[1] - self._scrapes[0]
        gone, end = now + MISSED_SCRAPES * interval + SLOW_SCRAPE, now + most
        while self._answered < now and time.monotonic() < (min(gone, end) if self._scrapes[-1] < now else end):
            gevent.sleep(0.02)

    def close(self) -> None:
        self._server.stop(timeout=1)
