"""A collector that takes OpenTelemetry's spans and metrics over HTTP, and keeps them."""

from __future__ import annotations

import gzip
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support.servers.odd import Odd, OddServer
from tests.support.servers.wire_script import Step, json_answer


class Collector(OddServer):
    def __init__(self) -> None:
        taken: list[Step] = [json_answer("200 OK", {})]
        super().__init__(Odd(routes={"/v1/traces": taken, "/v1/metrics": taken}))

    def _messages(self, path: str) -> list[bytes]:
        return [
            gzip.decompress(request.body) if request.headers.get("content-encoding") == "gzip" else request.body
            for request in self.asked_at(path)
        ]

    @property
    def spans(self) -> list[Span]:
        messages = map(ExportTraceServiceRequest.FromString, self._messages("/v1/traces"))
        scopes = [scope for message in messages for part in message.resource_spans for scope in part.scope_spans]
        return [span for scope in scopes for span in scope.spans]

    def points(self, name: str) -> list[Any]:
        """Return the last points of a histogram."""
        (part,) = ExportMetricsServiceRequest.FromString(self._messages("/v1/metrics")[-1]).resource_metrics
        named = [metric for scope in part.scope_metrics for metric in scope.metrics if metric.name == name]
        return [point for metric in named for point in metric.histogram.data_points]


def values(attributes: Any) -> dict[str, Any]:
    """Return the attributes of a span or a point by name."""
    plain: dict[str, Any] = {}
    for attribute in attributes:
        kind = attribute.value.WhichOneof("value")
        value = getattr(attribute.value, kind)
        plain[attribute.key] = [item.string_value for item in value.values] if kind == "array_value" else value
    return plain
