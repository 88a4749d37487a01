"""Each request is a span of its own at a collector, with the ids that its header had and the times of its record."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from enginebench.records.load import Users
from enginebench.records.request import RequestRecord
from enginebench.records.stage import SECOND
from enginebench.settings.schema import UserMistake
from loadtests.harness.recording import otel
from tests.support.analysis.synthetic import meta_of, stages_of, write_run
from tests.support.analysis.synthetic import record as synthetic
from tests.support.loadtests.locust_process import Locust, start
from tests.support.servers.collector import Collector, values
from tests.support.servers.scripted import TIMING, Script, ScriptedServer

Run = tuple[Locust, ScriptedServer, Collector, str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A run of two processes, whose first request fails."""
    with ScriptedServer(Script(statuses=[500])) as server, Collector() as collector:
        locust = start(
            server, tmp_path_factory.mktemp("otel"), "--stages", "4", "--stage-requests", "20", "--otel",
            processes=2, environment={"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url},
        )  # fmt: skip
        yield locust, server, collector, locust.wait()


def test_each_request_is_a_span_with_the_ids_that_the_server_saw(run: Run) -> None:
    locust, server, collector, output = run
    records = {record.request_id: record for record in locust.records}
    spans = {values(span.attributes)["enginebench.request.id"]: span for span in collector.spans}
    assert len(collector.spans) == len(spans) == len(records) > 20
    assert f"{len(records)} spans were sent to OpenTelemetry: " in output
    assert spans.keys() == records.keys()
    parents = {f"00-{span.trace_id.hex()}-{span.span_id.hex()}-01" for span in collector.spans}
    assert parents == {headers["traceparent"] for headers in server.headers}
    # The run's start on the wall clock is in no file: it is the same for all spans.
    assert len({span.start_time_unix_nano - sent(records[name]) for name, span in spans.items()}) == 1
    for name, span in spans.items():
        assert span.end_time_unix_nano - span.start_time_unix_nano == records[name].t_end - sent(records[name])


def sent(record: RequestRecord) -> int:
    assert record.t_send is not None
    return record.t_send


def test_a_span_has_the_facts_of_its_record(run: Run) -> None:
    locust, _, collector, _ = run
    records = {record.request_id: record for record in locust.records}
    failed = 0
    for span in collector.spans:
        facts = values(span.attributes)
        record = records[facts["enginebench.request.id"]]
        assert span.name == "chat scripted-model"
        assert facts["gen_ai.provider.name"] == "openai"
        assert facts["http.response.status_code"] == record.status
        assert facts["gen_ai.request.max_tokens"] == record.planned_output_tokens
        assert facts["enginebench.outcome"] == record.outcome
        if record.outcome == "http_error":
            assert (facts["error.type"], span.status.code) == ("http_error", 2)
            failed += 1
            continue
        assert "error.type" not in facts
        assert facts["gen_ai.usage.input_tokens"] == record.prompt_tokens
        assert facts["gen_ai.usage.output_tokens"] == record.output_tokens
        reasons = None if record.finish_reason is None else [record.finish_reason]
        assert facts.get("gen_ai.response.finish_reasons") == reasons
        assert record.t_first is not None
        assert facts["gen_ai.response.time_to_first_chunk"] == (record.t_first - sent(record)) / SECOND
        events = {event.name: values(event.attributes).get("seconds") for event in span.events}
        assert events == {"first_token": None, **TIMING}
    assert failed == 1


def test_the_metrics_count_all_requests(run: Run) -> None:
    locust, _, collector, _ = run
    ended = [record for record in locust.records if record.outcome == "ok"]
    durations = {values(point.attributes).get("error.type"): point for point in
                 collector.points("gen_ai.client.operation.duration")}  # fmt: skip
    assert {error: point.count for error, point in durations.items()} == {None: len(ended), "http_error": 1}
    assert durations[None].sum == pytest.approx(sum(record.t_end - sent(record) for record in ended) / SECOND)
    (first,) = collector.points("gen_ai.client.operation.time_to_first_chunk")
    assert first.count == len(ended)
    tokens = {values(point.attributes)["gen_ai.token.type"]: point.sum for point in
              collector.points("gen_ai.client.token.usage")}  # fmt: skip
    assert tokens == {
        "input": sum(record.prompt_tokens or 0 for record in ended),
        "output": sum(record.output_tokens or 0 for record in ended),
    }


def test_spans_that_no_collector_takes_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    write_run(tmp_path, meta_of(stages_of((Users(1),), 1.0)), [synthetic(number, 0) for number in range(3)])
    sender = otel.SpanSender(tmp_path, "a run", 0)
    with caplog.at_level(logging.ERROR):
        sender.finish()
    assert "3 of 3 spans were not sent (" in caplog.text


def test_without_the_extra_a_sentence_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    otel.check_installed()
    for missing in ("no_such_package", "no_such_package.sdk"):
        monkeypatch.setattr(otel, "NEEDED", (missing,))
        with pytest.raises(
            UserMistake, match=r"--otel needs OpenTelemetry's SDK, .*: pip install 'enginebench\[otel\]'"
        ):
            otel.check_installed()
