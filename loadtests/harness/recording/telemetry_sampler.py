"""Samples of the load generator's own state and of the server's `/metrics`, once a second.

Each has its own greenlet, so that a slow scrape does not delay the other samples. The delay of the event loop is that
of a 20 ms timer; due requests are delayed equally.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Iterator
from itertools import chain, islice

import gevent
from prometheus_client.parser import text_string_to_metric_families

from enginebench.records.telemetry import SERVERS, TelemetrySample
from loadtests.harness.client.authentication import Access
from loadtests.harness.client.questions import NoAnswer, Questions
from loadtests.harness.client.server_address import Address
from loadtests.harness.recording.recorder import Recorder

INTERVAL = 1.0  # seconds between two samples
TICK = 0.02  # seconds of the timer
MAX_SERIES = 5000  # per page: a server with eight GPUs has a tenth of that
HISTOGRAM = re.compile(r"[\w:]+_bucket[{ ]")
FAMILIES = ("enginebench_", *chain.from_iterable(SERVERS.values()), "DCGM_FI_", "process_")
"""Families of `/metrics` that are kept: of our server, other servers, GPU exporters, and the server process."""


class Scraper:
    """Read one server's `/metrics` over a connection that stays open."""

    def __init__(self, url: str, access: Access) -> None:
        self._address, self._target = Address.parse(url), Address.parse(url).target("/metrics")
        self._questions = Questions(self._address, access, keep=True)

    def scrape(self) -> dict[str, float]:
        """Return the values of the page, or nothing if the server does not answer with it now: a balancer that answers
        404 for a moment must not end the telemetry."""
        try:
            with self._questions.ask("GET", self._target) as reply:
                page = reply.read()
        except NoAnswer:
            return {}
        if reply.status == 200 and page[:1] in (
            b"[",
            b"{",
        ):  # TensorRT-LLM's JSON
            self._target = self._address.target("/prometheus/metrics")
        return parse_metrics(page.decode("utf-8", "replace")) if reply.status == 200 else {}

    def close(self) -> None:
        self._questions.close()


def parse_metrics(text: str) -> dict[str, float]:
    """Read Prometheus' text format into values by name with labels, for `FAMILIES` only.

    Histogram buckets are left out: they are ten times the rest, and no report uses them. A malformed page gives the
    values before its first error.
    """
    lines = (line for line in text.split("\n") if line.startswith(FAMILIES) and not HISTOGRAM.match(line))
    kept = "".join(f"{line}\n" for line in islice(lines, MAX_SERIES))
    values = {}
    try:
        for family in text_string_to_metric_families(kept):
            for sample in family.samples:
                if math.isfinite(sample.value) and not sample.name.endswith("_created"):
                    labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
                    values[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    except ValueError:
        pass
    return values


class TelemetrySampler:
    """Write samples until it is stopped, and then a last one.

    `since` is the run's start on this process's monotonic clock (ns). `users` returns the number of this process's
    users, `requests` records their requests; both are `None` for Locust's master, which makes no load.
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
        self._worst_lag = self._due = 0.0
        self._tick = gevent.get_hub().loop.timer(TICK, TICK, ref=False)
        self._run_delay = RunDelay()
        self._greenlets: list[gevent.Greenlet[..., None]] = []

    def start(self) -> None:
        self._greenlets = [gevent.spawn(self._sample_client)]
        self._due = time.monotonic() + TICK
        self._tick.start(self._look_at_the_loop)
        if self._scraper is not None:
            self._greenlets.append(gevent.spawn(self._sample_server, self._scraper))

    def stop(self) -> None:
        gevent.killall(self._greenlets)
        self._tick.close()
        users = None if self._users is None else 0
        self._recorder.write(TelemetrySample(self._now(), users=users, last=True, lost=self._lost()))
        if self._scraper is not None:
            self._scraper.close()
        self._run_delay.close()
        self._recorder.close()

    def _sample_server(self, scraper: Scraper) -> None:
        for _ in _every(INTERVAL):
            values = scraper.scrape()
            if values:
                self._recorder.write(TelemetrySample(self._now(), server=values))

    def _sample_client(self) -> None:
        last_time, last_cpu, last_delay = time.monotonic(), time.process_time(), self._run_delay.read()
        for _ in _every(INTERVAL):
            now, cpu, delay = time.monotonic(), time.process_time(), self._run_delay.read()
            elapsed, makes_load = now - last_time, self._users is not None
            waited = (delay - last_delay) / elapsed if delay is not None and last_delay is not None else None
            sample = TelemetrySample(
                t=self._now(),
                client_cpu=(cpu - last_cpu) / elapsed if makes_load else None,
                loop_lag=self._worst_lag if makes_load else None,
                run_delay=waited,
                users=None if self._users is None else self._users(),
                lost=self._lost(),
            )
            self._recorder.write(sample)
            last_time, last_cpu, last_delay, self._worst_lag = now, cpu, delay, 0.0

    def _lost(self) -> int:
        return 0 if self._requests is None else self._requests.lost

    def _now(self) -> int:
        return time.monotonic_ns() - self._since

    def _look_at_the_loop(self) -> None:
        now = time.monotonic()
        self._worst_lag, self._due = max(self._worst_lag, now - self._due), now + TICK


class RunDelay:
    """The time in which this process was ready to run but had no core."""

    def __init__(self) -> None:
        try:  # the file stays open, so that a process without free descriptors can read it
            self._file: int | None = os.open("/proc/self/schedstat", os.O_RDONLY)
        except OSError:
            self._file = None

    def read(self) -> float | None:
        """Return the seconds so far; `None` if the kernel does not count them."""
        try:
            return None if self._file is None else int(os.pread(self._file, 100, 0).split()[1]) / 1e9
        except (OSError, IndexError, ValueError):
            return None

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _every(seconds: float) -> Iterator[None]:
    """Wait cooperatively for multiples of `seconds` from now, skipping those that were missed."""
    due = time.monotonic()
    while True:
        due = max(due + seconds, time.monotonic())
        gevent.sleep(due - time.monotonic())
        yield
