"""A plan's figures as gauges for Prometheus, so that the page *Capacity planning* shows them beside what servers do."""

from __future__ import annotations

import math
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from analysis.plan.answer import Plan
from records.run import RunMeta

PREFIX = "enginebench_plan_"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def page(plan: Plan, meta: RunMeta) -> bytes:
    """`meta` is of one of the plan's runs: engine and model have the names that its server exports."""
    labels = {"engine": str((meta.engine or {}).get("name") or plan.label), "model": meta.model or "unknown"}
    registry = CollectorRegistry()

    def gauge(name: str, about: str, value: float | None, **more: str) -> None:
        if value is not None and math.isfinite(value):
            family = Gauge(PREFIX + name, about, [*labels, *more], registry=registry)
            family.labels(**labels, **more).set(value)

    measured = plan.safe.load.value if plan.safe is not None else None
    if plan.safe is not None and measured is not None:
        safe, unit = measured, plan.safe.unit
    else:  # what each replica bears at the plan's peak
        safe, unit = plan.load.value / plan.replicas.count, plan.load.unit
    chosen = plan.replicas.chosen
    gauge("safe_load", "Load of one replica at which the objectives hold.", safe, unit=unit)
    gauge("replicas", "Replicas for the peak.", plan.replicas.count)
    gauge("replicas_with_spare", "Replicas for the peak, spare ones included.", plan.count)
    gauge("attainment_ratio", "Predicted share of requests that meet every objective.", chosen.share.median)
    gauge("ttft_seconds", "Predicted time to first token at the peak.", chosen.ttft_p95.median, quantile="0.95")
    if plan.bill is not None:
        cost = plan.bill.per_million_output_tokens
        gauge("cost_usd_per_million_tokens", "Cost of a million output tokens at the peak.", cost)
    return generate_latest(registry)


def parse_address(text: str) -> tuple[str, int]:
    """`HOST:PORT`. Raises `ValueError` with a sentence."""
    host, colon, port = text.rpartition(":")
    if not (host and colon and port.isdecimal() and int(port) < 65536):
        raise ValueError(f"`{text}` is no address to publish on: give HOST:PORT, such as 127.0.0.1:9647.")
    return host, int(port)


def server_of(content: bytes, address: tuple[str, int]) -> ThreadingHTTPServer:
    """Serves `content` as /metrics. Raises `ValueError` where the address cannot be listened on."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path == "/metrics"
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.end_headers()
            self.wfile.write(content if found else b"The metrics are at /metrics.\n")

        def log_message(self, format: str, *arguments: object) -> None: ...

    try:
        return ThreadingHTTPServer(address, Page)
    except OSError as error:
        raise ValueError(f"{address[0]}:{address[1]} cannot be listened on ({error.strerror}).") from None
