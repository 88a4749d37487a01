"""`/metrics` of the load test over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import gevent
from gevent.pywsgi import WSGIServer

from loadtests.harness.live.prometheus import CONTENT_TYPE


class Endpoint:
    """Serves what `families` gives, on `host`:`port`. Raises `OSError` where that cannot be listened on."""

    def __init__(self, host: str, port: int, families: Callable[[], Iterable[str]]) -> None:
        self._families = families
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
        for part in self._families():
            if part:
                yield part.encode()
            gevent.sleep(0)

    def close(self) -> None:
        self._server.stop(timeout=1)
