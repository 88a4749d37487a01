"""The `/metrics` of a successful load test with known rates."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.metrics_core import Metric
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
OF_ANSWERS = ("ttft", "ttft_user", "tpot", "e2e_user")
STAGE_SECONDS = 4.0


class ScriptedRun(Collector):
    """A scripted run: all counters grow with the clock, and the stage changes every `STAGE_SECONDS`."""

    def __init__(self, run: str, engine: str, started: float) -> None:
        self._started = started
        self._labels = {"run": run, "scenario": "steady", "engine": engine, "model": "a-model"}

    def collect(self) -> Iterator[Metric]:
        elapsed = time.time() - self._started
        done = elapsed * RATE
        index = int(elapsed / STAGE_SECONDS)
        labels = self._labels | {"stage": f"{USERS} users, {index}"}
        for name, mean in MEANS.items():
            # Every value lies between half and twice the mean, but for those of failures, which are infinite.
            finite = done * GOOD if name in OF_ANSWERS else done
            for edge, count in ((mean / 2, 0.0), (mean * 2, finite), (1000.0, finite), ("+Inf", done)):
                yield _sample(f"{name}_seconds_bucket", count, **self._labels, le=str(edge))
            yield _sample(f"{name}_seconds_sum", mean * finite, **self._labels)
            yield _sample(f"{name}_seconds_count", done, **self._labels)
        for outcome, value in {"ok": done * GOOD, "rejected": done * (1 - GOOD), "cut_off": 0.0}.items():
            yield _sample("requests_total", value, **self._labels, outcome=outcome)
        yield _sample("output_tokens_total", done * TOKENS, **self._labels)
        yield _sample("good_requests_total", done * GOOD, **self._labels)
        for name, value in (
            ("in_flight", 10.0),
            ("users", USERS),
            ("recent_offered_rate", RATE),
            ("stage_index", index),
        ):
            yield _sample(name, value, **labels)
        for objective, seconds in OBJECTIVES.items():
            yield _sample("objective_seconds", seconds, **labels, objective=objective)
        yield _sample("run_start_seconds", self._started, **self._labels)
        for stage, rank in (("warned of", 2), (labels["stage"], 0)):
            yield _sample("finding", rank, **(labels | {"stage": stage}), kind="load_generator_late")
        yield _sample("stage_load", USERS, **labels)
        begin = self._started + index * STAGE_SECONDS
        for end, value in {"start": begin, "end": time.time()}.items():
            yield _sample(f"stage_{end}_seconds", value, **labels)
        for name, value in {"attainment": GOOD, "failure_share": 1 - GOOD}.items():
            yield _sample(f"stage_{name}", value, **labels)
        yield _sample("stage_throughput_tokens_per_second", RATE * TOKENS, **labels)
        for name in OF_ANSWERS:
            for q in ("0.5", "0.99"):
                yield _sample(f"stage_{name}_seconds", MEANS[name], **labels, quantile=q)
        yield _sample("run_info", 1, **self._labels, server="http://127.0.0.1:8000")


def _sample(name: str, value: float, **labels: str) -> Metric:
    metric = Metric(f"enginebench_load_{name}", name, "unknown")
    metric.add_sample(metric.name, labels, value)
    return metric


@contextmanager
def exported(*collectors: Collector) -> Iterator[str]:
    """Serve `/metrics` of `collectors` on loopback, and yield its `host:port`."""
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
