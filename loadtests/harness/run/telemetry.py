"""Once a second: how busy this process was, how late its event loop ran, and what the server's `/metrics` said.

The loop's lateness is measured by a timer of its own: a greenlet that asks to be woken every 20 ms and notes by how
much it was not. Whatever holds that timer up also holds up a request that is due.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

import gevent
import httpx

from loadtests.harness.run.recorder import Recorder
from records.record import TelemetrySample

INTERVAL = 1.0  # seconds between two samples
TICK = 0.02  # seconds between two looks at the loop
PATIENCE = 5.0  # seconds for one scrape
FAMILIES = ("enginebench_", "vllm:", "sglang:", "process_")
"""What is kept of `/metrics`: our families, those of the servers people compare with, the server process's own."""


class Scraper:
    """Reads one server's `/metrics` over a connection that stays open."""

    def __init__(self, url: str, headers: Mapping[str, str], insecure: bool) -> None:
        self._url = url.rstrip("/") + "/metrics"
        self._http: httpx.Client | None = httpx.Client(
            headers={**headers, "Accept-Encoding": "identity"}, verify=not insecure, timeout=PATIENCE, trust_env=False
        )

    def scrape(self) -> dict[str, float]:
        """Empty when the server has no such page, or does not answer just now."""
        if self._http is None:
            return {}
        try:
            answer = self._http.get(self._url)
        except httpx.HTTPError:
            return {}
        if answer.status_code == 404:
            self.close()  # it has none, and will have none in a second
        return parse_metrics(answer.text) if answer.is_success else {}

    def close(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None


def parse_metrics(text: str) -> dict[str, float]:
    """Prometheus' text format → value by name with labels, for `FAMILIES` only.

    Histogram buckets are left out: they are ten times the rest, and no reported number is made from them.
    """
    values = {}
    for line in text.splitlines():
        if not line.startswith(FAMILIES):
            continue
        name, brace, rest = line.rpartition("}")
        if not brace:
            name, _, rest = line.partition(" ")
        series = name + brace
        if series.partition("{")[0].endswith(("_bucket", "_created")):
            continue
        try:
            value = float(rest.split()[0])  # a time stamp may follow
        except (IndexError, ValueError):
            continue
        if math.isfinite(value):
            values[series] = value
    return values


class Telemetry:
    """Writes a sample a second until it is stopped, and then one more.

    `since` is the run's start on this process's monotonic clock (ns). `users` tells how many users this process has,
    `requests` is where they are recorded; both are `None` for Locust's master, which makes no load.
    """

    def __init__(
        self,
        recorder: Recorder,
        since: int,
        scraper: Scraper | None,
        users: Callable[[], int] | None,
        requests: Recorder | None,
    ) -> None:
        self._recorder = recorder
        self._since = since
        self._scraper = scraper
        self._users = users
        self._requests = requests
        self._worst_lag = 0.0
        self._greenlets: list[gevent.Greenlet[..., None]] = []

    def start(self) -> None:
        self._greenlets = [gevent.spawn(self._sample), gevent.spawn(self._watch_loop)]

    def stop(self) -> None:
        gevent.killall(self._greenlets)
        self._recorder.write(
            TelemetrySample(self._now(), client_cpu=None, users=None if self._users is None else 0, lost=self._lost())
        )
        if self._scraper is not None:
            self._scraper.close()
        self._recorder.close()

    def _sample(self) -> None:
        last_time, last_cpu = time.monotonic(), time.process_time()
        due = last_time
        while True:
            due += INTERVAL
            gevent.sleep(max(0.0, due - time.monotonic()))
            server = {} if self._scraper is None else self._scraper.scrape()
            now, cpu = time.monotonic(), time.process_time()
            makes_load = self._users is not None
            sample = TelemetrySample(
                t=self._now(),
                client_cpu=(cpu - last_cpu) / (now - last_time) if makes_load else None,
                server=server,
                loop_lag=self._worst_lag if makes_load else None,
                users=None if self._users is None else self._users(),
                lost=self._lost(),
            )
            self._recorder.write(sample)
            last_time, last_cpu, self._worst_lag = now, cpu, 0.0

    def _lost(self) -> int:
        return 0 if self._requests is None else self._requests.lost

    def _now(self) -> int:
        return time.monotonic_ns() - self._since

    def _watch_loop(self) -> None:
        while True:
            due = time.monotonic() + TICK
            gevent.sleep(TICK)
            self._worst_lag = max(self._worst_lag, time.monotonic() - due)
