"""Recorded agents in the two forms in which others have them: Weka's sessions, and spans of OpenTelemetry."""

from __future__ import annotations

import json
from typing import Any


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
