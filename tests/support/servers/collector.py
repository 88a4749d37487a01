"""A collector that takes OpenTelemetry's spans and metrics over HTTP, and keeps them."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.traces: list[ExportTraceServiceRequest] = []
        self.metrics: list[ExportMetricsServiceRequest] = []

    @property
    def spans(self) -> list[Span]:
        scopes = [scope for message in self.traces for part in message.resource_spans for scope in part.scope_spans]
        return [span for scope in scopes for span in scope.spans]

    def points(self, name: str) -> list[Any]:
        """Return the last points of a histogram."""
        (part,) = self.metrics[-1].resource_metrics
        named = [metric for scope in part.scope_metrics for metric in scope.metrics if metric.name == name]
        return [point for metric in named for point in metric.histogram.data_points]


class Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Content-Encoding"] == "gzip":
            body = gzip.decompress(body)
        if self.path == "/v1/traces":
            self.server.traces.append(ExportTraceServiceRequest.FromString(body))
        else:
            self.server.metrics.append(ExportMetricsServiceRequest.FromString(body))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def collecting() -> Iterator[Collector]:
    with Collector() as collector:
        Thread(target=collector.serve_forever, args=(0.01,), daemon=True).start()
        yield collector
        collector.shutdown()


def values(attributes: Any) -> dict[str, Any]:
    """Return the attributes of a span or a point by name."""
    plain: dict[str, Any] = {}
    for attribute in attributes:
        kind = attribute.value.WhichOneof("value")
        value = getattr(attribute.value, kind)
        plain[attribute.key] = [item.string_value for item in value.values] if kind == "array_value" else value
    return plain
