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
    """Nothing is known of when a session began."""
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
            found = _weka_items(inner, block_tokens, session, scope, begins if relative else start, relative)
            if found:
                items.append(Agent(found, awaited=entry.get("status") != "async_launched"))
        elif entry["in"] > 0:
            blocks = tuple(entry.get("hash_ids") or ())
            request = TraceRequest(
                int(entry["in"]), max(1, int(entry["out"])), blocks, block_tokens, scope, session=session
            )
            items.append(AgentCall(begins, begins + float(entry.get("api_time") or 0.0), request))
    return items


def _times_are_relative(entries: Iterable[Document]) -> bool:
    """Whether the times of a sub-agent's requests count from its own beginning: then some lie before it."""
    for entry in entries:
        inner = entry.get("requests") or () if entry["type"] == "subagent" else ()
        if any(each["t"] < entry["t"] for each in inner) or _times_are_relative(inner):
            return True
    return False


def read_otel(documents: Iterable[Document]) -> Iterator[TraceArrival | None]:
    """A session is a conversation where the spans name one (`gen_ai.conversation.id`), else a trace."""
    traces: dict[str, list[_Span]] = defaultdict(list)
    for document in documents:
        for span in _spans(document):
            traces[span.trace].append(span)
    sessions: dict[str, list[AgentCall | Agent]] = defaultdict(list)
    for trace, spans in traces.items():
        name = next((str(each.conversation) for each in spans if each.conversation), trace)
        if items := _otel_items(spans, name):
            sessions[name].append(Agent(items))
        yield from (None for each in spans if each.is_call and each.request(name, "") is None)
    for items in sessions.values():
        agent = Agent(items)
        yield TraceArrival(agent.start, session_requests(agent))


def _otel_items(spans: list[_Span], session: str) -> list[AgentCall | Agent]:
    children: dict[str, list[_Span]] = defaultdict(list)
    known = {span.id for span in spans}
    for span in spans:
        children[span.parent if span.parent in known else ""].append(span)

    def below(parent: str) -> list[AgentCall | Agent]:
        found: list[AgentCall | Agent] = []
        for span in children[parent]:
            if not span.is_call:
                if inner := below(span.id):
                    found.append(Agent(inner))
            elif request := span.request(session, parent):  # what is below a call is the same call, seen by a library
                found.append(AgentCall(span.start, span.end, request))
        return found

    return below("")


class _Span:
    """One span, of either form."""

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
        """`None` where it failed, or where nothing is known of its prompt or its answer."""
        output = self._tokens("output_tokens", "completion_tokens") or _length(self._said("output"))
        messages = [*self._messages("gen_ai.system_instructions"), *self._said("input")]
        prompt = self._tokens("input_tokens", "prompt_tokens")
        if self._failed or not output or not (messages or prompt):
            return None
        if messages:  # how many tokens they have for the model under test is not known
            return TraceRequest(None, output, messages=tuple(messages), session=session)
        assert prompt is not None
        blocks = tuple(range(math.ceil(prompt / HISTORY_BLOCK)))
        return TraceRequest(prompt, output, blocks, HISTORY_BLOCK, f"{session}/{agent}", session=session)

    def _tokens(self, *names: str) -> int | None:
        found = (self._attributes.get(f"gen_ai.usage.{name}") for name in names)
        return next((int(value) for value in found if value), None)

    def _said(self, which: str) -> list[tuple[str, str]]:
        text = self._attributes.get(f"gen_ai.{which}.text")
        return [("assistant", str(text))] if text else self._messages(f"gen_ai.{which}.messages")

    def _messages(self, name: str) -> list[tuple[str, str]]:
        """As (role, text); what is no text, such as a call of a tool, as its JSON."""
        given = self._attributes.get(name) or []
        given = json.loads(given) if isinstance(given, str) else given
        role = "system" if name.endswith("instructions") else "user"
        return [(ROLES.get(str(each.get("role", role)), "user"), _text(each)) for each in given]


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
    return {each["key"]: _value(each["value"]) for each in attributes}


def _value(value: Document) -> Any:
    """Of OTLP/JSON, in which whole numbers are text."""
    ((kind, content),) = value.items()
    match kind:
        case "intValue":
            return int(content)
        case "arrayValue":
            return [_value(each) for each in content.get("values") or ()]
        case "kvlistValue":
            return _values(content.get("values") or ())
        case _:
            return content


def _moment(value: Any) -> float:
    """Seconds since 1970, of nanoseconds or of a date and time."""
    if isinstance(value, int | float) or str(value).isdecimal():
        return int(value) / 1e9
    moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
