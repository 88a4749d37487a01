"""Readers of recorded agents: sessions with tools, pauses and sub-agents.

weka   a JSON object for each session, in a file, in lines, in Parquet or in a folder of files: `requests` of type n or
       s with t, in, out, api_time (seconds, tokens) and hash_ids of blocks of `block_size` tokens, and of type subagent
       with requests of their own (github.com/callanjfox/kv-cache-tester; semianalysisai/cc-traces-weka-*)
otel   spans of OpenTelemetry's conventions for generative AI, as OTLP/JSON (`resourceSpans`, the collector's file
       exporter) or as `spans`: each gen_ai span of the operation chat, text_completion or generate_content is a call,
       and the spans above it are the agents (opentelemetry.io/docs/specs/semconv/gen-ai)
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from loadtests.harness.schedule.trace import TraceArrival, TraceRequest
from loadtests.harness.workload.agent_sessions import Agent, AgentCall, session_requests

Document = Mapping[str, Any]
CALLS = {"chat", "text_completion", "generate_content"}
ROLES = {"system": "system", "developer": "system", "assistant": "assistant", "model": "assistant"}
HISTORY_BLOCK = 64  # tokens: calls of one agent without texts share the beginning of its history, in blocks
CHARACTERS_A_TOKEN = 4  # of answers that were recorded as text
FAILED_STATUS = {2, "2", "ERROR", "STATUS_CODE_ERROR"}


def agent_format(document: Document) -> str | None:
    if isinstance(document.get("requests"), list):
        return "weka"
    return "otel" if "resourceSpans" in document or "spans" in document else None


def read_weka(document: Document, place: str) -> Iterator[TraceArrival | None]:
    """Read a session without its start, which is not recorded."""
    session = str(document.get("id", place))
    scope = "" if document.get("hash_id_scope") == "global" else session
    entries: list[Document] = document["requests"]
    items = _weka_items(entries, int(document["block_size"]), session, scope, 0.0, _times_are_relative(entries))
    yield TraceArrival(None, session_requests(Agent(items))) if items else None


def _weka_items(
    entries: Iterable[Document], block_tokens: int, session: str, scope: str, start: float, relative: bool
) -> list[AgentCall | Agent]:
    items: list[AgentCall | Agent] = []
    for entry in entries:
        begins = start + float(entry["t"])
        if entry["type"] == "subagent":
            inner = entry.get("requests") or ()
            inner_items = _weka_items(inner, block_tokens, session, scope, begins if relative else start, relative)
            if inner_items:
                items.append(Agent(inner_items, awaited=entry.get("status") != "async_launched"))
        elif entry["in"] > 0:
            blocks = tuple(entry.get("hash_ids") or ())
            request = TraceRequest(
                int(entry["in"]), max(1, int(entry["out"])), blocks, block_tokens, scope, session=session
            )
            items.append(AgentCall(begins, begins + float(entry.get("api_time") or 0.0), request))
    return items


def _times_are_relative(entries: Iterable[Document]) -> bool:
    """Return whether the times of a sub-agent's requests count from its own start: then some are before it."""
    for entry in entries:
        inner = entry.get("requests") or () if entry["type"] == "subagent" else ()
        if any(request["t"] < entry["t"] for request in inner) or _times_are_relative(inner):
            return True
    return False


def read_otel(documents: Iterable[Document]) -> Iterator[TraceArrival | None]:
    """Read sessions: conversations if the spans name them (`gen_ai.conversation.id`), else traces."""
    traces: dict[str, list[_Span]] = defaultdict(list)
    for document in documents:
        for span in _spans(document):
            traces[span.trace].append(span)
    sessions: dict[str, list[AgentCall | Agent]] = defaultdict(list)
    for trace, spans in traces.items():
        name = next((str(span.conversation) for span in spans if span.conversation), trace)
        if items := _otel_items(spans, name):
            sessions[name].append(Agent(items))
        yield from (None for span in spans if span.is_call and span.request(name, "") is None)
    for items in sessions.values():
        agent = Agent(items)
        yield TraceArrival(agent.start, session_requests(agent))


def _otel_items(spans: list[_Span], session: str) -> list[AgentCall | Agent]:
    children: dict[str, list[_Span]] = defaultdict(list)
    ids = {span.id for span in spans}
    for span in spans:
        children[span.parent if span.parent in ids else ""].append(span)

    def below(parent: str) -> list[AgentCall | Agent]:
        items: list[AgentCall | Agent] = []
        for span in children[parent]:
            if not span.is_call:
                if inner := below(span.id):
                    items.append(Agent(inner))
            elif request := span.request(session, parent):  # spans below a call are the same call in a library
                items.append(AgentCall(span.start, span.end, request))
        return items

    return below("")


class _Span:
    """A span in either form."""

    def __init__(self, raw: Document) -> None:
        def first(*names: str) -> Any:
            return next((raw[name] for name in names if raw.get(name) not in (None, "")), None)

        self.id = str(first("spanId", "span_id"))
        self.trace = str(first("traceId", "trace_id"))
        self.parent = str(first("parentSpanId", "parent_span_id") or "")
        self.start = _moment(first("startTimeUnixNano", "start_time"))
        self.end = _moment(first("endTimeUnixNano", "end_time"))
        attributes = raw.get("attributes") or {}
        self._attributes: Document = attributes if isinstance(attributes, Mapping) else _values(attributes)
        self._failed = (raw.get("status") or {}).get("code") in FAILED_STATUS
        operation = self._attributes.get("gen_ai.operation.name")
        self.is_call = operation in CALLS or (operation is None and "gen_ai.request.model" in self._attributes)
        self.conversation = self._attributes.get("gen_ai.conversation.id")

    def request(self, session: str, agent: str) -> TraceRequest | None:
        """Return the call's request; `None` if it failed, or if its prompt or its answer is not recorded."""
        output = self._tokens("output_tokens", "completion_tokens") or _length(self._texts("output"))
        messages = [*self._messages("gen_ai.system_instructions"), *self._texts("input")]
        prompt = self._tokens("input_tokens", "prompt_tokens")
        if self._failed or not output or not (messages or prompt):
            return None
        if messages:  # their tokens for the model under test are not known
            return TraceRequest(None, output, messages=tuple(messages), session=session)
        assert prompt is not None
        blocks = tuple(range(math.ceil(prompt / HISTORY_BLOCK)))
        return TraceRequest(prompt, output, blocks, HISTORY_BLOCK, f"{session}/{agent}", session=session)

    def _tokens(self, *names: str) -> int | None:
        values = (self._attributes.get(f"gen_ai.usage.{name}") for name in names)
        return next((int(value) for value in values if value), None)

    def _texts(self, which: str) -> list[tuple[str, str]]:
        text = self._attributes.get(f"gen_ai.{which}.text")
        return [("assistant", str(text))] if text else self._messages(f"gen_ai.{which}.messages")

    def _messages(self, name: str) -> list[tuple[str, str]]:
        """Return messages as (role, text); parts without text, such as a call of a tool, become JSON."""
        messages = self._attributes.get(name) or []
        messages = json.loads(messages) if isinstance(messages, str) else messages
        role = "system" if name.endswith("instructions") else "user"
        return [(ROLES.get(str(message.get("role", role)), "user"), _text(message)) for message in messages]


def _text(message: Document) -> str:
    parts = message.get("parts") or message.get("content") or message.get("tool_calls") or ""
    if isinstance(parts, str):
        return parts
    texts = ((part.get("content") or part.get("text")) if part.get("type") == "text" else part for part in parts)
    return "\n".join(text if isinstance(text, str) else json.dumps(text) for text in texts)


def _length(messages: Iterable[tuple[str, str]]) -> int:
    return sum(math.ceil(len(text) / CHARACTERS_A_TOKEN) for _, text in messages)


def _spans(document: Document) -> Iterator[_Span]:
    for resource in document.get("resourceSpans") or ():
        for scope in resource.get("scopeSpans") or ():
            yield from map(_Span, scope.get("spans") or ())
    yield from map(_Span, document.get("spans") or ())


def _values(attributes: Iterable[Document]) -> dict[str, Any]:
    return {attribute["key"]: _value(attribute["value"]) for attribute in attributes}


def _value(value: Document) -> Any:
    """Read a value of OTLP/JSON, where whole numbers are text."""
    ((kind, content),) = value.items()
    match kind:
        case "intValue":
            return int(content)
        case "arrayValue":
            return [_value(element) for element in content.get("values") or ()]
        case "kvlistValue":
            return _values(content.get("values") or ())
        case _:
            return content


def _moment(value: Any) -> float:
    """Return seconds since 1970 from nanoseconds or from a date and time."""
    if isinstance(value, int | float) or str(value).isdecimal():
        return int(value) / 1e9
    moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
