"""Recorded agents in the two forms in which others have them: Weka's sessions, and spans of OpenTelemetry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from loadtests.harness.schedule.trace import TraceRequest
from loadtests.harness.workload.trace_files import read_trace


def weka(session: str = "s1", relative: bool = False) -> dict[str, Any]:
    """A turn, two sub-agents at a time, one more in the background, and a turn that waits for the two."""
    offset = 0.0 if relative else 3.0

    def request(t: float, seconds: float, hashes: list[int], kind: str = "s") -> dict[str, Any]:
        tokens = 64 * len(hashes) - 4
        return {"t": t, "type": kind, "model": "m", "in": tokens, "out": 7, "hash_ids": hashes, "api_time": seconds}

    def subagent(status: str, *requests: dict[str, Any]) -> dict[str, Any]:
        return {
            "t": 3.0, "type": "subagent", "agent_id": "a", "subagent_type": "Explore", "status": status, "models": [],
            "requests": list(requests),
        }  # fmt: skip

    return {
        "id": session,
        "models": ["m"],
        "block_size": 64,
        "hash_id_scope": "local",
        "requests": [
            request(0.0, 2.0, [1, 2]),
            subagent("completed", request(offset, 1.0, [9]), request(offset + 2, 2.0, [9, 8])),
            subagent("completed", request(offset, 3.0, [9])),
            subagent("async_launched", request(offset, 1.0, [7])),
            request(8.0, 1.0, [1, 2, 3], "n"),
        ],
    }


def shape(requests: tuple[TraceRequest, ...]) -> list[tuple[tuple[int, ...], float]]:
    return [(request.after, round(request.pause, 6)) for request in requests]


@pytest.mark.parametrize("relative", [False, True], ids=["times of the session", "times of the sub-agent"])
def test_weka_sessions(tmp_path: Path, relative: bool) -> None:
    file = tmp_path / "trace_0001.json"
    file.write_text(json.dumps(weka(relative=relative), indent=1))
    trace = read_trace(str(file))
    (arrival,) = trace.arrivals
    assert arrival.at == 0.0
    requests = arrival.requests
    assert sorted(len(request.after) for request in requests) == [0, 1, 1, 1, 1, 2]
    last = requests[-1]
    assert (last.prompt_tokens, last.output_tokens, last.blocks, last.block_tokens) == (188, 7, (1, 2, 3), 64)
    assert (last.pause, last.session, last.scope) == (1.0, "s1", "s1")
    waited_for = {requests[index].blocks for index in last.after}
    assert waited_for == {(9, 8), (9,)}, "not for the one in the background"


def test_several_sessions_of_lines_a_folder_or_parquet_have_no_times_of_their_own(tmp_path: Path) -> None:
    sessions = [weka("one"), weka("two")]
    lines, folder, parquet = tmp_path / "lines.jsonl", tmp_path / "folder", tmp_path / "corpus.parquet"
    lines.write_text("".join(json.dumps(each) + "\n" for each in sessions))
    folder.mkdir()
    for each in sessions:
        (folder / f"{each['id']}.json").write_text(json.dumps(each))
    pl.DataFrame(sessions).write_parquet(parquet)
    traces = [read_trace(str(path)) for path in (lines, folder, parquet)]
    assert traces[0] == traces[1] == traces[2]
    assert not traces[0].is_timed
    assert [arrival.requests[0].scope for arrival in traces[0].arrivals] == ["one", "two"]


def span(name: str, start: float, end: float, parent: str = "", **attributes: Any) -> dict[str, Any]:
    return {
        "trace_id": "t1", "span_id": name, "parent_span_id": parent or None, "name": name, "attributes": attributes,
        "start_time": f"2026-02-25T10:00:{start:06.3f}Z", "end_time": f"2026-02-25T10:00:{end:06.3f}Z",
    }  # fmt: skip


def chat(name: str, start: float, end: float, parent: str = "", said: str = "", **more: Any) -> dict[str, Any]:
    asked = {"gen_ai.input.messages": json.dumps([{"role": "user", "content": said}])} if said else {}
    usage = {"gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 9}
    return span(name, start, end, parent, **{"gen_ai.operation.name": "chat"}, **usage, **asked, **more)


SPANS = [
    span("plan", 0, 12, **{"gen_ai.operation.name": "invoke_agent"}),
    chat("c1", 0, 2, "plan", "Plan it."),
    span("search", 3, 9, "plan", **{"gen_ai.operation.name": "execute_tool"}),
    chat("c2", 3, 4, "search", "Search."),
    chat("c3", 5, 9, "search", "Read."),
    span("write", 3, 8, "plan"),
    chat("c4", 4, 7, "write"),
    chat("c4 again, as a library saw it", 4.1, 6.9, "c4"),
    chat("c5", 10, 11, "plan", "Sum up."),
    {**chat("failed", 11, 11.5, "plan", "Again."), "status": {"code": 2}},
]


def otlp(spans: list[dict[str, Any]]) -> dict[str, Any]:
    """As the collector's file exporter writes them."""

    def value(given: Any) -> dict[str, Any]:
        return {"intValue": str(given)} if isinstance(given, int) else {"stringValue": given}

    def nanoseconds(moment: str) -> str:
        minute, second = moment.removesuffix("Z").rsplit(":", 1)
        assert minute == "2026-02-25T10:00"
        return str(1_772_013_600_000_000_000 + round(float(second) * 1e9))

    written = [
        {
            "traceId": each["trace_id"], "spanId": each["span_id"], "parentSpanId": each["parent_span_id"] or "",
            "startTimeUnixNano": nanoseconds(each["start_time"]), "endTimeUnixNano": nanoseconds(each["end_time"]),
            "attributes": [{"key": key, "value": value(given)} for key, given in each["attributes"].items()],
            "status": each.get("status", {}),
        }
        for each in spans
    ]  # fmt: skip
    return {"resourceSpans": [{"scopeSpans": [{"spans": written}]}]}


def test_spans_of_opentelemetry(tmp_path: Path) -> None:
    flat, batches = tmp_path / "flat.json", tmp_path / "otlp.jsonl"
    flat.write_text(json.dumps({"trace_id": "t1", "spans": SPANS}))
    batches.write_text("".join(json.dumps(otlp(part)) + "\n" for part in (SPANS[:4], SPANS[4:])))
    trace = read_trace(str(flat))
    (arrival,) = trace.arrivals
    assert shape(arrival.requests) == [((), 0), ((0,), 1), ((0,), 2), ((1,), 1), ((2, 3), 1)]
    assert [request.messages for request in arrival.requests] == [
        (("user", "Plan it."),), (("user", "Search."),), (), (("user", "Read."),), (("user", "Sum up."),),
    ]  # fmt: skip
    without_text = arrival.requests[2]
    assert (without_text.prompt_tokens, without_text.output_tokens, without_text.blocks) == (100, 9, (0, 1))
    assert (arrival.at, trace.is_timed, trace.left_out) == (0.0, True, 1)
    assert read_trace(str(batches)) == trace


def test_messages_of_parts_tools_and_a_system_prompt(tmp_path: Path) -> None:
    asked = [
        {"role": "user", "parts": [{"type": "text", "content": "Weather?"}]},
        {"role": "assistant", "parts": [{"type": "tool_call", "name": "weather"}]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "result": "rain"}]},
    ]
    attributes: dict[str, Any] = {
        "gen_ai.input.messages": asked,
        "gen_ai.system_instructions": [{"type": "text", "content": "Be brief."}],
    }
    file = tmp_path / "spans.json"
    file.write_text(json.dumps({"spans": [chat("c", 0, 1, **attributes)]}))
    (request,) = read_trace(str(file)).requests
    assert [role for role, _ in request.messages] == ["system", "user", "assistant", "user"]
    assert [text for _, text in request.messages][:2] == ["Be brief.", "Weather?"]
    assert "weather" in request.messages[2][1]
    assert "rain" in request.messages[3][1]


def test_a_file_of_something_else_gets_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text('{"spans": 3}')
    with pytest.raises(ValueError, match=r"is not a trace in the format otel .*: name another"):
        read_trace(str(file))
    file.write_text('{"some": "thing"}')
    with pytest.raises(ValueError, match="unknown format"):
        read_trace(str(file))
