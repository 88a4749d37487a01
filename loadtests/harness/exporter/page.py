"""`/metrics` of the load test over HTTP, and when it was last read, by whom, how often."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import gevent
from gevent.pywsgi import WSGIServer

from loadtests.harness.exporter.text import CONTENT_TYPE

INTERVALS = 2  # of a reader's own, that are waited for its last scrape
LOOK = 0.05  # seconds


@dataclass(slots=True)
class Reader:
    """One client. `interval` in seconds: between its last two scrapes; of a single one the timeout that it said, which
    is no longer than its interval."""

    last: float
    interval: float | None = None


class Scrapes:
    """All times are seconds on the monotonic clock."""

    def __init__(self) -> None:
        self._readers: dict[str, Reader] = {}

    def seen(self, reader: str, at: float, timeout: float | None) -> None:
        """`reader` has been given the whole page, as it was at `at`."""
        before = self._readers.get(reader)
        self._readers[reader] = Reader(at, timeout if before is None else at - before.last)

    def waited_for(self, since: float) -> float | None:
        """Until when to wait for those who read regularly to read once more after `since`; `None` for not at all.

        Who has read already since, or stopped reading before, is not waited for.
        """
        ends = [
            since + INTERVALS * one.interval
            for one in self._readers.values()
            if one.interval is not None and since - INTERVALS * one.interval <= one.last <= since
        ]
        return max(ends, default=None)


class Page:
    """Serves what `families` gives, on `host`:`port`. Raises `OSError` where that cannot be listened on."""

    def __init__(self, host: str, port: int, families: Callable[[], Iterable[str]]) -> None:
        self._families = families
        self.scrapes = Scrapes()
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
        return self._parts(environ)

    def _parts(self, environ: dict[str, Any]) -> Iterator[bytes]:
        """A family at a time: between two of them the loop reads answers and sends requests."""
        began = time.monotonic()
        for part in self._families():
            if part:
                yield part.encode()
            gevent.sleep(0)
        reader = f"{environ.get('REMOTE_ADDR')} {environ.get('HTTP_USER_AGENT')}"
        self.scrapes.seen(reader, began, _seconds(environ.get("HTTP_X_PROMETHEUS_SCRAPE_TIMEOUT_SECONDS")))

    def wait_for_last_scrape(self, since: float) -> None:
        """`since`: when what is served became final, on the monotonic clock."""
        while (until := self.scrapes.waited_for(since)) is not None and time.monotonic() < until:
            gevent.sleep(LOOK)

    def close(self) -> None:
        self._server.stop(timeout=1)


def _seconds(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None
