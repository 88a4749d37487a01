"""Once a second: the load generator's own state and the server's `/metrics`.

The two are sampled apart, so that a server that is slow to answer a scrape does not hold up the other. The
delay of the event loop is that of a timer of 20 ms: what delays it also delays due requests.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from itertools import chain, islice

import gevent
from prometheus_client.parser import text_string_to_metric_families

from enginebench.records.findings.load_generator import CROWDED
from enginebench.records.telemetry import SERVERS, TelemetrySample
from loadtests.harness.client.authentication import Access
from loadtests.harness.client.questions import NoAnswer, Questions
from loadtests.harness.client.server_address import Address
from loadtests.harness.recording.cpu_holder import CpuTimes
from loadtests.harness.recording.recorder import Recorder

INTERVAL = 1.0  # seconds between two samples
TICK = 0.02  # seconds between two looks at the loop
MAX_SERIES = 5000  # of a page: a server of eight GPUs has a tenth of that
FAMILIES = ("enginebench_", *chain.from_iterable(SERVERS.values()), "DCGM_FI_", "process_")
"""What is kept of `/metrics`: our families, those of other servers and GPU exporters, the server process's own."""


class Scraper:
    """Reads one server's `/metrics` over a connection that stays open."""

    def __init__(self, url: str, access: Access) -> None:
        self._address, self._target = Address.parse(url), Address.parse(url).target("/metrics")
        self._questions = Questions(self._address, access, keep=True)

    def scrape(self) -> dict[str, float]:
        """Empty when the server has no such page, or does not answer just now: a balancer that answers 404 for a moment
        must not end the telemetry of the whole run."""
        try:
            with self._questions.ask("GET", self._target) as reply:
                page = reply.read()
        except NoAnswer:
            return {}
        if reply.status == 200 and page[:1] in (b"[", b"{"):  # of TensorRT-LLM: JSON, with the page elsewhere
            self._target = self._address.target("/prometheus/metrics")
        return parse_metrics(page.decode("utf-8", "replace")) if reply.status == 200 else {}

    def close(self) -> None:
        self._questions.close()


def parse_metrics(text: str) -> dict[str, float]:
    """Prometheus' text format → value by name with labels, for `FAMILIES` only.

    Histogram buckets are left out: they are ten times the rest, and no reported number is made from them. A page that
    is not as it should be gives what could be read of it.
    """
    kept = (line for line in text.split("\n") if line.startswith(FAMILIES) and "_bucket" not in line)
    wanted = "".join(f"{line}\n" for line in islice(kept, MAX_SERIES))
    values = {}
    try:
        for family in text_string_to_metric_families(wanted):
            for sample in family.samples:
                if math.isfinite(sample.value) and not sample.name.endswith("_created"):
                    labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
                    values[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    except ValueError:
        pass
    return values


class TelemetrySampler:
    """Writes samples until it is stopped, and then a last one.

    `since` is the run's start on this process's monotonic clock (ns). `users` tells
    how many users this process has, `requests` is where they are recorded; both are `None` for Locust's master, which
    makes no load.
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
        before: CpuTimes | None = None
        for _ in _every(INTERVAL):
            now, cpu, delay = time.monotonic(), time.process_time(), self._run_delay.read()
            elapsed, makes_load = now - last_time, self._users is not None
            waited = (delay - last_delay) / elapsed if delay is not None and last_delay is not None else None
            others = CpuTimes.read() if makes_load and waited is not None and waited > CROWDED else None
            holder = others.holder_since(before) if others is not None and before is not None else None
            before = others
            sample = TelemetrySample(
                t=self._now(),
                client_cpu=(cpu - last_cpu) / elapsed if makes_load else None,
                loop_lag=self._worst_lag if makes_load else None,
                run_delay=waited,
                cpu_holder=holder[0] if holder is not None else None,
                cpu_holder_cores=holder[1] if holder is not None else None,
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
    """How long this process was ready to run and had no core."""

    def __init__(self) -> None:
        try:  # it stays open: a process without free descriptors can read it, too
            self._file: int | None = os.open("/proc/self/schedstat", os.O_RDONLY)
        except OSError:
            self._file = None

    def read(self) -> float | None:
        """Seconds so far; `None` where the kernel does not count them."""
        try:
            return None if self._file is None else int(os.pread(self._file, 100, 0).split()[1]) / 1e9
        except (OSError, IndexError, ValueError):
            return None

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _every(seconds: float) -> Iterator[None]:
    """Cooperatively, at multiples of `seconds` from now; one that was missed is not made up for."""
    due = time.monotonic()
    while True:
        due = max(due + seconds, time.monotonic())
        gevent.sleep(due - time.monotonic())
        yield
