"""The server's own metrics, for Prometheus.

Tokens are counted far more often than metrics are scraped, so the hot path adds to plain Python numbers (one event
loop, no locks), and a collector converts them into Prometheus' metric families at each scrape.

    curl http://127.0.0.1:8000/metrics
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from engines.contract.base import EngineInfo, EngineStats
from servers.http.api_errors import OUTCOMES, ServerOutcome
from servers.openai.wire import ENDPOINTS, Endpoint

# Upper bounds in seconds: vLLM's, so that both servers' histograms can be compared, and more between them, because a
# percentile is only as precise as its bucket. With only vLLM's, a p99 of 1.1 s reads as 2.5 s.
TTFT_BUCKETS = (
    *(0.0005, 0.001, 0.0015, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1),
    *(0.125, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.5, 10.0),
    *(12.5, 15.0, 20.0, 30.0, 40.0, 60.0, 80.0, 120.0, 160.0, 320.0, 640.0),
)
TPOT_BUCKETS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0015, 0.002, 0.003, 0.004, 0.005, 0.006, 0.0075, 0.01, 0.0125, 0.015, 0.0175),
    *(0.02, 0.025, 0.03, 0.035, 0.04, 0.05, 0.06, 0.075, 0.1, 0.125, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 1.0, 1.5),
    *(2.0, 2.5, 3.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
E2E_BUCKETS = (
    *(0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5),
    *(0.65, 0.8, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.5, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0),
    *(60.0, 90.0, 120.0, 180.0, 240.0, 360.0, 480.0, 720.0, 960.0),
)
PREFIX = "enginebench_"


class Histogram:
    """Counts by bucket. `observe` costs one bisection and two additions."""

    __slots__ = ("_bounds", "_counts", "_sum", "help", "name")

    def __init__(self, name: str, help: str, bounds: Sequence[float]) -> None:
        self.name = PREFIX + name
        self.help = help
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    def observe_zeros(self, times: int) -> None:
        self._counts[0] += times

    def family(self, engine: str) -> HistogramMetricFamily:
        buckets, so_far = [], 0
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            so_far += count
            buckets.append(("+Inf" if bound == float("inf") else str(bound), float(so_far)))
        family = HistogramMetricFamily(self.name, self.help, labels=["engine"])
        family.add_metric([engine], buckets, self._sum)
        return family


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Values that are read at each scrape; `info` is `None` until the engine is loaded."""

    running: int
    waiting: int
    ready: bool
    restarts: int
    replicas: int  # only those that accept requests
    info: EngineInfo | None


class Metrics(Collector):
    """The server's metrics. `snapshot` is called at each scrape. No alert fires when a server `for_a_run` ends."""

    def __init__(self, engine: str, snapshot: Callable[[], Snapshot], for_a_run: bool = False) -> None:
        self._engine = engine
        self._snapshot = snapshot
        self._started_by = "run" if for_a_run else "serve"
        self._histograms: list[Histogram] = []
        self.time_to_first_token = self._histogram(
            "time_to_first_token_seconds", "From the request's arrival to its first token.", TTFT_BUCKETS
        )
        self.time_per_output_token = self._histogram(
            "time_per_output_token_seconds", "Mean seconds per token after the first chunk, per request.", TPOT_BUCKETS
        )
        self.inter_chunk_latency = self._histogram(
            "inter_chunk_latency_seconds",
            "Time between two chunks of an answer, as the engine sends them.",
            TPOT_BUCKETS,
        )
        self.e2e_request_latency = self._histogram(
            "e2e_request_latency_seconds",
            "From the request's arrival to its last token; complete answers only.",
            E2E_BUCKETS,
        )
        self.request_queue_time = self._histogram(
            "request_queue_time_seconds", "From the request's arrival to its admission.", TTFT_BUCKETS
        )
        self.request_prefill_time = self._histogram(
            "request_prefill_time_seconds", "From admission to the first token.", TTFT_BUCKETS
        )
        self.request_decode_time = self._histogram(
            "request_decode_time_seconds", "From the first token to the last; complete answers only.", E2E_BUCKETS
        )
        self.engine_stats = EngineStats()  # set before each scrape
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.requests: dict[tuple[Endpoint, ServerOutcome], int] = dict.fromkeys(
            ((endpoint, outcome) for endpoint in ENDPOINTS for outcome in OUTCOMES), 0
        )

    def collect(self) -> Iterator[Metric]:
        for histogram in self._histograms:
            yield histogram.family(self._engine)
        yield from self._counters()
        yield from self._gauges()

    def _histogram(self, name: str, help: str, bounds: Sequence[float]) -> Histogram:
        self._histograms.append(Histogram(name, help, bounds))
        return self._histograms[-1]

    def _counters(self) -> Iterator[Metric]:
        yield self._counter("prompt_tokens", "Prompt tokens of admitted requests.", self.prompt_tokens)
        yield self._counter("generation_tokens", "Tokens generated by the engine.", self.generation_tokens)
        family = CounterMetricFamily(
            PREFIX + "requests", "Finished requests by outcome.", labels=["engine", "endpoint", "outcome"]
        )
        for (endpoint, outcome), count in self.requests.items():
            family.add_metric([self._engine, endpoint, outcome], count)
        yield family

    def _gauges(self) -> Iterator[Metric]:
        now = self._snapshot()
        yield self._gauge("requests_running", "Requests that hold one of the engine's slots.", now.running)
        yield self._gauge("requests_waiting", "Requests waiting for a slot.", now.waiting)
        yield self._gauge("engine_ready", "1 while requests are accepted, else 0.", float(now.ready))
        yield self._gauge("engine_replicas", "Processes of the engine that accept requests.", now.replicas)
        yield self._counter("engine_restarts", "Restarts of the engine's process.", now.restarts)
        stats = self.engine_stats
        if stats.cpu_seconds is not None:
            yield self._counter("engine_cpu_seconds", "CPU time of the engine's processes.", stats.cpu_seconds)
        for name, help, value in (
            ("engine_memory_bytes", "Resident memory of the engine's processes.", stats.memory_bytes),
            ("engine_memory_peak_bytes", "Peak resident memory of the engine's processes.", stats.memory_peak_bytes),
            ("engine_device_memory_bytes", "Device memory of the engine.", stats.device_memory_bytes),
            ("engine_device_memory_peak_bytes", "Peak device memory of the engine.", stats.device_memory_peak_bytes),
            ("kv_cache_usage_ratio", "Share of the KV cache in use, 0 to 1.", stats.kv_cache_usage),
        ):
            if value is not None:
                yield self._gauge(name, help, value)
        if (info := now.info) is not None:
            yield self._gauge(
                "engine_max_concurrency", "Requests that the engine can run at the same time.", info.max_concurrency
            )
            build = InfoMetricFamily(PREFIX + "build", "Version, engine, model, number format and device.")
            described = {
                "engine_version": info.version,
                "model": info.model,
                "dtype": info.dtype,
                "device": info.device,
            }
            origin = {"version": own_version(), "started_by": self._started_by}
            build.add_metric([], {**origin, "engine": self._engine, **described})
            yield build

    def _gauge(self, name: str, help: str, value: float) -> GaugeMetricFamily:
        family = GaugeMetricFamily(PREFIX + name, help, labels=["engine"])
        family.add_metric([self._engine], value)
        return family

    def _counter(self, name: str, help: str, value: float) -> CounterMetricFamily:
        family = CounterMetricFamily(PREFIX + name, help, labels=["engine"])
        family.add_metric([self._engine], value)
        return family


def registry_of(collectors: Iterable[Collector]) -> CollectorRegistry:
    """Return a registry for this server only: metrics of the Python process, and `collectors`."""
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    for collector in collectors:
        registry.register(collector)
    return registry


@cache
def own_version() -> str:
    """Return enginebench's version. Cached, because the lookup takes milliseconds."""
    try:
        return version("enginebench")
    except PackageNotFoundError:  # run from a checkout that was never installed
        return "unknown"
