"""The HTTP server of the load test's own metrics for Prometheus (`--exporter`): all processes added up, served by the
planning process.

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
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from enginebench.settings.schema import Address, UserMistake, write_address
from loadtests.harness.event_loop import yield_to_io
from loadtests.harness.live.live_run import LiveRun
from loadtests.harness.live.metric_families import Family, families
from loadtests.harness.live.same_origin import SameOrigin
from loadtests.harness.settings.run_settings import EXPORTER_PORTS, RunSettings

logger = logging.getLogger(__name__)

MISSED_SCRAPES = 2  # intervals without a scrape after which Prometheus is considered gone
SLOW_SCRAPE = 2.0  # seconds by which a busy machine may exceed the interval


def serve(address: Address, live: LiveRun, started: float) -> MetricsServer | None:
    """Serve the metrics of a run that began at `started`, in seconds since 1970.

    If the port of the default address is taken, the next ones are tried; return `None` if all are taken. Raises
    `UserMistake` if another address cannot be listened on.
    """
    host, port = address
    ports = range(port, port + (EXPORTER_PORTS if address == RunSettings().exporter else 1))
    for chosen in ports:
        try:
            server = MetricsServer(host, chosen, lambda: families(live, started))
        except OSError as error:
            reason = error.strerror
            continue
        logger.info("This load test's metrics are at %s", server.address)
        if chosen != port:
            logger.warning("Port %d is taken: this load test's metrics are on port %d.", port, chosen)
        return server
    if len(ports) == 1:
        raise UserMistake(
            f"the load test's metrics cannot be served on {write_address(address)} ({reason}): give another "
            "address with --exporter, or none."
        )
    logger.warning("Ports %d to %d are taken: this load test serves no metrics; see --exporter.", port, ports[-1])
    return None


class MetricsServer:
    """Serve the result of `families` on `host`:`port`. Raises `OSError` if the port cannot be listened on."""

    def __init__(self, host: str, port: int, families: Callable[[], Iterable[Family]]) -> None:
        self._families = families
        self._scrapes: deque[float] = deque(maxlen=2)  # when the last two scrapes began
        self._answered = -math.inf  # when the last scrape that was answered began
        page = SameOrigin(self._answer, host, "--exporter")
        self._server = WSGIServer((host, port), page, log=None, error_log=None)
        self._server.start()

    @property
    def address(self) -> str:
        host, port = str(self._server.server_host), self._server.server_port
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"

    def _answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] != "/metrics" or environ["REQUEST_METHOD"] != "GET":
            start_response("404 Not Found", [("Content-Type", "text/plain")])
            return [b"The metrics are at /metrics.\n"]
        start_response("200 OK", [("Content-Type", CONTENT_TYPE_PLAIN_0_0_4)])
        return self._parts()

    def _parts(self) -> Iterator[bytes]:
        """Yield one family at a time: between two of them the loop reads answers and sends requests."""
        began = time.monotonic()
        self._scrapes.append(began)
        for family in self._families():
            if family.samples:
                yield generate_latest(family)
            yield_to_io()
        self._answered = began

    def wait_for_scrape(self, most: float) -> None:
        """Wait at most `most` seconds until a scrape that begins from now on is answered, if there were regular
        scrapes. A scrape that is already being answered may have older counts."""
        if len(self._scrapes) < 2:
            return
        now, interval = time.monotonic(), self._scrapes[1] - self._scrapes[0]
        gone, end = now + MISSED_SCRAPES * interval + SLOW_SCRAPE, now + most
        while self._answered < now and time.monotonic() < (min(gone, end) if self._scrapes[-1] < now else end):
            gevent.sleep(0.02)

    def close(self) -> None:
        self._server.stop(timeout=1)
