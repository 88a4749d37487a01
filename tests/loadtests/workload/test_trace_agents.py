"""Recorded agents in the two forms in which others have them: Weka's sessions, and spans of OpenTelemetry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from loadtests.harness.schedule.trace import TraceRequest
from loadtests.harness.workload.trace_files import read_trace
from tests.support.loadtests.agent_traces import SPANS, chat, otlp, weka


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
    with pytest.raises(ValueError, match=r"x.json is not in the format otel "):
        read_trace(str(file))
    file.write_text('{"some": "thing"}')
    with pytest.raises(ValueError, match="unknown format"):
        read_trace(str(file))
