"""One OpenTelemetry span for each request to the completion paths, where OTLP is configured; else nothing is imported.

    OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 enginebench serve --engine fake

The span is a child of the caller's where the request has a W3C `traceparent`, and is made when the request has ended,
from the stamps that its `timing` is made of. Names follow OpenTelemetry's semantic conventions for generative AI.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Literal

from servers.http.errors import Outcome
from servers.openai.intake import AcceptedRequest
from servers.openai.wire import Endpoint
from servers.request_times import RequestTimes

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""Where the OpenTelemetry specification lets a collector's address stand. The other `OTEL_` variables hold as well."""
OPERATIONS: dict[Endpoint, str] = {"chat": "chat", "completions": "text_completion"}
NOT_ERRORS: tuple[Outcome, ...] = ("ok", "cancelled")
SECOND = 1_000_000_000  # nanoseconds
Value = str | int | float | bool | Sequence[str]


def configured_tracer(engine: str, environment: Mapping[str, str] = os.environ) -> SpanExport | None:
    """The tracer, or `None` where no OTLP endpoint is configured. Raises `ValueError` with a sentence."""
    endpoint = next((name for name in ENDPOINTS if environment.get(name)), None)
    if endpoint is None or environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    try:
        return SpanExport(engine)
    except ImportError:
        raise ValueError(
            f"{endpoint} asks for traces, but OpenTelemetry is not installed; "
            "install enginebench[otel], or unset the variable."
        ) from None


class SpanExport:
    """Sends spans to an OTLP collector over HTTP, in batches, from a thread of its own."""

    def __init__(self, engine: str) -> None:
        """Raises `ImportError` without OpenTelemetry's SDK."""
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        name = os.environ.get("OTEL_SERVICE_NAME", "enginebench")
        self._provider = TracerProvider(resource=Resource.create({SERVICE_NAME: name, "enginebench.engine": engine}))
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("enginebench")
        self._caller = TraceContextTextMapPropagator()

    def record(
        self,
        headers: Sequence[tuple[bytes, bytes]],
        endpoint: Endpoint,
        outcome: Outcome,
        arrived: float,
        accepted: AcceptedRequest | None,
        times: RequestTimes | None,
    ) -> None:
        """Make the span of a request that has ended now.

        `arrived` is when its headers had been read, on the clock of `times`, which is `None`, as `accepted` is, where
        the request was refused before.
        """
        from opentelemetry.trace import SpanKind, Status, StatusCode

        to_unix = time.time() - time.monotonic()
        carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
        operation = OPERATIONS[endpoint]
        span = self._tracer.start_span(
            operation if accepted is None else f"{operation} {accepted.wire.model}",
            context=self._caller.extract(carrier),
            kind=SpanKind.SERVER,
            attributes={"gen_ai.operation.name": operation, "gen_ai.provider.name": "enginebench"},
            start_time=_nanoseconds(arrived + to_unix),
        )
        if accepted is not None:
            span.set_attributes(_asked(accepted))
        if times is not None:
            span.set_attributes(_answered(times))
            for phase, begin, seconds in _phases(times):
                span.add_event(phase, {"seconds": seconds}, _nanoseconds(begin + to_unix))
        if outcome not in NOT_ERRORS:
            span.set_status(Status(StatusCode.ERROR))
            span.set_attribute("error.type", outcome)
        span.set_attribute("enginebench.outcome", outcome)
        span.end(time.time_ns())

    def close(self) -> None:
        """Send what was not sent yet. May take as long as `OTEL_EXPORTER_OTLP_TIMEOUT`."""
        self._provider.shutdown()


def _asked(accepted: AcceptedRequest) -> dict[str, Value]:
    request = accepted.request
    asked: dict[str, Value] = {
        "gen_ai.request.model": accepted.wire.model,
        "gen_ai.response.model": accepted.wire.model,
        "gen_ai.response.id": accepted.wire.id,
        "gen_ai.request.stream": accepted.streamed,
        "gen_ai.request.max_tokens": request.max_tokens,
        "gen_ai.request.temperature": request.temperature,
        "gen_ai.request.top_p": request.top_p,
        "gen_ai.usage.input_tokens": len(request.prompt_token_ids),
    }
    if request.seed is not None:
        asked["gen_ai.request.seed"] = request.seed
    return asked


def _answered(times: RequestTimes) -> dict[str, Value]:
    answered: dict[str, Value] = {"gen_ai.usage.output_tokens": times.produced}
    if times.first is not None:
        answered["gen_ai.response.time_to_first_chunk"] = times.first - times.received
    if times.finish_reason is not None:
        answered["gen_ai.response.finish_reasons"] = (times.finish_reason,)
    return answered


def _phases(times: RequestTimes) -> list[tuple[Literal["queue", "prefill", "decode"], float, float]]:
    """Name, begin on the stamps' clock, and seconds of each; none where no token came."""
    if times.first is None or times.last is None:
        return []
    return [
        ("queue", times.received, times.admitted - times.received),
        ("prefill", times.admitted, times.first - times.admitted),
        ("decode", times.first, times.last - times.first),
    ]


def _nanoseconds(seconds: float) -> int:
    return round(seconds * SECOND)
