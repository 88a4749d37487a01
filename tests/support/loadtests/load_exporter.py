"""The `/metrics` of a load test that goes well, with known rates."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

RATE = 20.0  # finished requests per second
TOKENS = 32  # per request
GOOD = 0.995  # share of requests that met every SLO; the others fail
USERS = 40
OBJECTIVES = {"ttft_p95": 0.5, "tpot_p95": 0.05, "e2e_p95": 2.0}  # seconds
MEANS = {
    "ttft": 0.1998,
    "ttft_user": 0.2,
    "tpot": 0.01,
    "e2e_user": 0.52,
    "send_lag": 0.0002,
    "client_lag": 0.0001,
}  # seconds
STAGE_SECONDS = 4.0


class ScriptedRun(Collector):
    """All counters grow with the clock. The stage changes every `STAGE_SECONDS`."""

    def __init__(self, run: str, engine: str, started: float) -> None:
        self._started = started
        self._labels = {"run": run, "scenario": "steady", "engine": engine, "model": "a-model"}

    def collect(self) -> Iterator[Metric]:
        elapsed = time.time() - self._started
        done = elapsed * RATE
        index = int(elapsed / STAGE_SECONDS)
        labels = self._labels | {"stage": f"{USERS} users, {index}"}
        for name, mean in MEANS.items():
            yield self._histogram(name, mean, done, self._labels)
        yield self._counter("requests", {"ok": done * GOOD, "rejected": done * (1 - GOOD), "cut_off": 0.0}, "outcome")
        for name, value in (("output_tokens", done * TOKENS), ("good_requests", done * GOOD)):
            yield self._counter(name, {"": value})
        for name, value in (
            ("in_flight", 10.0),
            ("users", USERS),
            ("recent_offered_rate", RATE),
            ("stage_index", index),
        ):
            yield _gauge(f"enginebench_load_{name}", labels, value)
        for objective, seconds in OBJECTIVES.items():
            yield _gauge("enginebench_load_objective_seconds", labels | {"objective": objective}, seconds)
        yield _gauge("enginebench_load_run_start_seconds", self._labels, self._started)
        for stage, rank in (("warned of", 2), (labels["stage"], 0)):
            yield _gauge("enginebench_load_finding", labels | {"stage": stage, "kind": "load_generator_late"}, rank)
        yield _gauge("enginebench_load_stage_load", labels, USERS)
        begin = self._started + index * STAGE_SECONDS
        for end, value in {"start": begin, "end": time.time()}.items():
            yield _gauge(f"enginebench_load_stage_{end}_seconds", labels, value)
        for name, value in {"attainment": GOOD, "failure_share": 1 - GOOD}.items():
            yield _gauge(f"enginebench_load_stage_{name}", labels, value)
        yield _gauge("enginebench_load_stage_throughput_tokens_per_second", labels, RATE * TOKENS)
        for name in ("ttft", "ttft_user", "tpot", "e2e_user"):
            for q in ("0.5", "0.99"):
                yield _gauge(f"enginebench_load_stage_{name}_seconds", labels | {"quantile": q}, MEANS[name])
        info = InfoMetricFamily("enginebench_load_run", "The run.")
        info.add_metric([], self._labels | {"server": "http://127.0.0.1:8000"})
        yield info

    def _counter(self, name: str, values: dict[str, float], label: str | None = None) -> CounterMetricFamily:
        names = [*self._labels, *([label] if label else [])]
        family = CounterMetricFamily(f"enginebench_load_{name}", name, labels=names)
        for key, value in values.items():
            family.add_metric([*self._labels.values(), *([key] if label else [])], value)
        return family

    def _histogram(self, name: str, mean: float, count: float, labels: dict[str, str]) -> HistogramMetricFamily:
        """Every value lies between half and twice the mean, but for those of failures, which are infinite."""
        family = HistogramMetricFamily(f"enginebench_load_{name}_seconds", name, labels=list(labels))
        finite = count * GOOD if name in {"ttft", "ttft_user", "tpot", "e2e_user"} else count
        buckets = [(str(mean / 2), 0.0), (str(mean * 2), finite), ("1000.0", finite), ("+Inf", count)]
        family.add_metric(list(labels.values()), buckets, sum_value=mean * finite)
        return family


def _gauge(name: str, labels: dict[str, str], value: float) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, name, labels=list(labels))
    family.add_metric(list(labels.values()), value)
    return family


@contextmanager
def exported(*collectors: Collector) -> Iterator[str]:
    """Serves `/metrics` of `collectors` on loopback; gives its `host:port`."""
    registry = CollectorRegistry(auto_describe=False)
    for collector in collectors:
        registry.register(collector)
    server, thread = start_http_server(0, addr="127.0.0.1", registry=registry)
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
