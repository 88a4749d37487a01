"""The process that sends a run's requests as OpenTelemetry spans and metrics, while their records are written.

python -m loadtests.harness.recording.otel_export FOLDER RUN START_WALL

Names follow the conventions for generative AI (github.com/open-telemetry/semantic-conventions-genai). The SDK reads its
own variables, such as OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME and OTEL_TRACES_SAMPLER. When standard input is
closed, the process sends the remaining records, and ends.
"""

from __future__ import annotations

import json
import logging
import os
import select
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.util.types import AttributeValue

from enginebench.records.files import blocks_of, decode_requests, read_meta, request_files
from enginebench.records.metrics import BY_NAME, TTFT
from enginebench.records.request import RequestRecord
from enginebench.records.rules import is_failure
from enginebench.records.run import RunMeta
from enginebench.records.stage import SECOND
from loadtests.harness.client.trace_context import trace_ids

POLL = 1.0  # seconds between two looks at the records
BATCH = 512  # spans in one message
NICENESS = 10  # the load generator goes first
SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
TOKENS = tuple(float(4**power) for power in range(14))
PROVIDERS = {"messages": "anthropic", "bedrock": "aws.bedrock"}  # other APIs are OpenAI's

Attributes = dict[str, AttributeValue]


class RecordedIds(IdGenerator):
    """Give the next span the ids that its request was sent with."""

    trace_id = span_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id


class Batches(SpanProcessor):
    """Send the ended spans when asked, and count those that are lost."""

    def __init__(self) -> None:
        self.spans = self.lost = 0
        self._exporter = OTLPSpanExporter()
        self._ended: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self._ended.append(span)

    def send(self) -> None:
        ended, self._ended = self._ended, []
        if ended:
            self.spans += len(ended)
            if self._exporter.export(ended) is not SpanExportResult.SUCCESS:
                self.lost += len(ended)


class LastMessage(logging.Handler):
    """Keep the SDK's last message: the reason why spans were lost."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()


class RequestSpans:
    """Make a span of each record, and its part of the metrics."""

    def __init__(self, meta: RunMeta, run: str, start_wall: int, batches: Batches) -> None:
        endpoint, url = str(meta.workload.get("endpoint", "chat")), urlsplit(meta.url)
        operation = "text_completion" if endpoint == "completions" else "chat"
        self._name = f"{operation} {meta.model}"
        self._run, self._start_wall, self._ids = run, start_wall, RecordedIds()
        self._common: Attributes = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": PROVIDERS.get(endpoint, "openai"),
            "gen_ai.request.model": meta.model,
            "server.address": url.hostname or "",
            "server.port": url.port or (443 if url.scheme == "https" else 80),
        }
        os.environ.setdefault("OTEL_SERVICE_NAME", "enginebench")
        resource = Resource.create({"enginebench.run.id": meta.run_id, "enginebench.label": meta.label or ""})
        traces = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        traces.add_span_processor(batches)
        self._tracer = traces.get_tracer("enginebench")
        self.metrics = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())], resource)
        meter = self.metrics.get_meter("enginebench")
        self._duration, self._first_chunk, self._tokens = (
            meter.create_histogram(f"gen_ai.client.{name}", unit, explicit_bucket_boundaries_advisory=bounds)
            for name, unit, bounds in (
                ("operation.duration", "s", SECONDS),
                ("operation.time_to_first_chunk", "s", SECONDS),
                ("token.usage", "{token}", TOKENS),
            )
        )

    def add(self, record: RequestRecord) -> None:
        began = record.t_sched if record.t_send is None else record.t_send
        failed = {"error.type": record.outcome} if is_failure(record.outcome) else {}
        self._ids.trace_id, self._ids.span_id = trace_ids(self._run, record.request_id)
        span = self._tracer.start_span(
            self._name,
            kind=SpanKind.CLIENT,
            attributes=self._common | failed | _attributes(record),
            start_time=self._start_wall + began,
        )
        for event, at, seconds in _events(record, began):
            span.add_event(event, {} if seconds is None else {"seconds": seconds}, self._start_wall + at)
        if failed:
            span.set_status(StatusCode.ERROR, record.detail)
        span.end(self._start_wall + record.t_end)
        self._duration.record((record.t_end - began) / SECOND, self._common | failed)
        if (first := BY_NAME[TTFT].read(record)) is not None:
            self._first_chunk.record(first, self._common)
        for kind, tokens in (("input", record.prompt_tokens), ("output", record.output_tokens)):
            if tokens is not None:
                self._tokens.record(tokens, self._common | {"gen_ai.token.type": kind})


def _attributes(record: RequestRecord) -> Attributes:
    values: dict[str, AttributeValue | None] = {
        "gen_ai.conversation.id": record.session,
        "gen_ai.request.max_tokens": record.planned_output_tokens,
        "gen_ai.request.stream": record.streamed,
        "gen_ai.response.finish_reasons": None if record.finish_reason is None else (record.finish_reason,),
        "gen_ai.response.time_to_first_chunk": BY_NAME[TTFT].read(record),
        "gen_ai.usage.cache_read.input_tokens": record.cached_tokens,
        "gen_ai.usage.input_tokens": record.prompt_tokens,
        "gen_ai.usage.output_tokens": record.output_tokens,
        "gen_ai.usage.reasoning.output_tokens": record.reasoning_tokens,
        "http.response.status_code": record.status,
        "enginebench.attempt": record.attempt,
        "enginebench.outcome": record.outcome,
        "enginebench.request.id": record.request_id,
        "enginebench.scheduled": record.t_sched / SECOND,  # seconds since the run's start
        "enginebench.stage": record.stage,
    }
    return {name: value for name, value in values.items() if value is not None}


def _events(record: RequestRecord, began: int) -> Iterator[tuple[str, int, float | None]]:
    """Yield the name, the instant and the seconds of each event.

    The server sends durations. They are placed as if the request had arrived when it was sent, since the clocks differ.
    """
    at = began
    for name, seconds in (("queue", record.server_queue), ("prefill", record.server_prefill)):
        if seconds is not None:
            at += round(seconds * SECOND)
            yield name, at, seconds
    if record.t_first is not None:
        yield "first_token", record.t_first, None
    if record.server_decode is not None and record.t_last is not None:
        yield "decode", record.t_last, record.server_decode


def main(folder: Path, run: str, start_wall: int) -> None:
    """Follow the records, and print how many spans were sent."""
    os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
    reason = LastMessage()
    logging.getLogger("opentelemetry").addHandler(reason)
    batches, offsets = Batches(), Counter[Path]()
    spans = RequestSpans(read_meta(folder), run, start_wall, batches)
    ended = False
    while not ended:
        ended = bool(select.select([sys.stdin], [], [], POLL)[0])
        for path in request_files(folder):
            for block in blocks_of(path, offsets[path]):
                offsets[path] += len(block)
                records = [line for line in decode_requests(block) if isinstance(line, RequestRecord)]
                for start in range(0, len(records), BATCH):
                    for record in records[start : start + BATCH]:
                        spans.add(record)
                    batches.send()
    spans.metrics.shutdown()
    print(json.dumps({"spans": batches.spans, "lost": batches.lost, "why": reason.text, "cpu": time.process_time()}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
