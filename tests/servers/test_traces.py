"""Spans, as a collector receives them over OTLP/HTTP."""

import gzip
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from servers.traces import configured_tracer
from tests.support.servers.served import CHAT, TEXT, Served, body, served

CALLER = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLERS_SPAN = "00f067aa0ba902b7"
SECOND = 1e9


@contextmanager
def collector() -> Iterator[tuple[str, "queue.Queue[Any]"]]:
    """A collector's address, and the spans that reach it."""
    spans: queue.Queue[Any] = queue.Queue()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                data = gzip.decompress(data)
            for resource in ExportTraceServiceRequest.FromString(data).resource_spans:
                for scope in resource.scope_spans:
                    for span in scope.spans:
                        spans.put((attributes(resource.resource), span))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", spans
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def attributes(described: Any) -> dict[str, Any]:
    values = {}
    for pair in described.attributes:
        kind = pair.value.WhichOneof("value")
        value = getattr(pair.value, kind)
        values[pair.key] = [one.string_value for one in value.values] if kind == "array_value" else value
    return values


@pytest.fixture(scope="module")
def traced() -> Iterator[tuple[Served, "queue.Queue[Any]"]]:
    with collector() as (url, spans):
        environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_BSP_SCHEDULE_DELAY": "50"}
        with served("ttft=0.2", "tpot=0.02", "concurrency=1", environment=environment) as server:
            yield server, spans


def test_a_span_joins_the_callers_trace_and_has_the_times_of_the_answer(
    traced: tuple[Served, "queue.Queue[Any]"],
) -> None:
    server, spans = traced
    headers = {"traceparent": f"00-{CALLER}-{CALLERS_SPAN}-01"}
    answer = server.client.post(CHAT, json=body(6), headers=headers).json()
    resource, span = spans.get(timeout=20)
    assert resource["service.name"] == "enginebench"
    assert resource["enginebench.engine"] == "fake"
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (CALLER, CALLERS_SPAN)
    assert span.name == f"chat {answer['model']}"
    seen = attributes(span)
    assert seen["gen_ai.operation.name"] == "chat"
    assert seen["gen_ai.response.id"] == answer["id"]
    assert seen["gen_ai.usage.input_tokens"] == answer["usage"]["prompt_tokens"]
    assert seen["gen_ai.usage.output_tokens"] == 6
    assert (seen["gen_ai.request.max_tokens"], seen["gen_ai.request.temperature"]) == (6, 0)
    assert seen["gen_ai.response.finish_reasons"] == ["length"]
    phases = {event.name: (event.time_unix_nano, attributes(event)["seconds"]) for event in span.events}
    timing = answer["timing"]
    assert {name: pytest.approx(seconds, abs=1e-6) for name, (_, seconds) in phases.items()} == {
        name: timing[name] for name in ("queue", "prefill", "decode")
    }
    assert phases["prefill"][1] >= 0.2
    assert phases["decode"][1] >= 0.09  # five tokens after the first, which a busy machine may notice late
    begun = phases["decode"][0] - phases["prefill"][0]
    assert begun / SECOND == pytest.approx(timing["prefill"], abs=1e-5)
    whole = (span.end_time_unix_nano - span.start_time_unix_nano) / SECOND
    assert whole >= timing["queue"] + timing["prefill"] + timing["decode"]


@pytest.mark.parametrize(
    ("fields", "outcome", "name"),
    [
        pytest.param({"temperature": 9}, "bad_request", "text_completion", id="a refused request has no phases"),
        pytest.param({"timeout": 0.05}, "timeout", None, id="an answer that took too long is an error"),
    ],
)
def test_what_failed_says_so(
    traced: tuple[Served, "queue.Queue[Any]"], fields: dict[str, Any], outcome: str, name: str | None
) -> None:
    server, spans = traced
    assert server.client.post(TEXT, json=body(4, TEXT) | fields).status_code >= 400
    _, span = spans.get(timeout=20)
    seen = attributes(span)
    assert (seen["error.type"], span.status.code) == (outcome, 2)
    assert name is None or span.name == name
    assert not span.events
    assert not span.parent_span_id


def test_a_caller_that_does_not_sample_gets_no_span(traced: tuple[Served, "queue.Queue[Any]"]) -> None:
    server, spans = traced
    headers = {"traceparent": f"00-{CALLER}-{CALLERS_SPAN}-00"}
    assert server.client.post(CHAT, json=body(1), headers=headers).status_code == 200
    assert server.client.post(CHAT, json=body(1), headers={"traceparent": "rubbish"}).status_code == 200
    _, span = spans.get(timeout=20)  # of the second request: a header that is no traceparent begins a trace
    assert span.trace_id.hex() != CALLER
    assert spans.empty()


@pytest.mark.parametrize(
    "environment",
    [{}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_SDK_DISABLED": "true"}],
    ids=["nothing configured", "switched off"],
)
def test_without_a_collector_there_is_no_tracer(environment: dict[str, str]) -> None:
    assert configured_tracer("fake", environment) is None


def test_a_server_without_traces_imports_no_sdk() -> None:
    code = "import servers.app, sys; print([m for m in sys.modules if m.startswith('opentelemetry.sdk')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)  # as if it were not installed
    with pytest.raises(ValueError, match=r"install enginebench\[otel\]"):
        configured_tracer("fake", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"})
