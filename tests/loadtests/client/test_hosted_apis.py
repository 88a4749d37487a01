"""A conversation with each hosted API, made from its public reference: answers, refusals, limits, failures midway."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from loadtests.harness.client.authentication import access_to
from loadtests.harness.client.call import Call
from loadtests.harness.client.client import Client
from loadtests.harness.client.dialects.dialect import Message, ModelRequest
from loadtests.harness.client.dialects.endpoints import DIALECTS
from tests.support.loadtests.asking import due
from tests.support.servers.dialect_answers import aws_frame
from tests.support.servers.wire_script import END, WireServer, frame

DATA = Path(__file__).parents[2] / "data" / "apis"
KEYS = {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k", "AWS_BEARER_TOKEN_BEDROCK": "k"}
MEDIA = {"bedrock": "application/vnd.amazon.eventstream"}
REQUEST = ModelRequest("a-model", (Message("user", "What is the capital of France?"),), 64)
CONVERSATIONS = {path.stem: json.loads(path.read_text()) for path in sorted(DATA.glob("*.json"))}


def written(endpoint: str, event: Any) -> bytes:
    """One event as the API writes it."""
    if endpoint == "bedrock":
        kind, payload = event
        if kind.endswith("Exception"):
            return aws_frame(payload, message_type="exception", exception_type=kind)
        return aws_frame(payload, event_type=kind)
    named = f"event: {event['type']}\n" if endpoint == "messages" else ""
    return f"{named}data: {json.dumps(event)}\n\n".encode()


def script(endpoint: str, exchange: dict[str, Any]) -> list[bytes]:
    """The writes of one answer: its head, then one for each event."""
    headers = dict(exchange["headers"])
    if "body" in exchange:
        body = json.dumps(exchange["body"]).encode()
        headers |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
    else:
        headers |= {"Content-Type": MEDIA.get(endpoint, "text/event-stream"), "Transfer-Encoding": "chunked"}
    lines = [f"HTTP/1.1 {exchange['status']}", *(f"{name}: {value}" for name, value in headers.items())]
    head = ("\r\n".join(lines) + "\r\n\r\n").encode()
    if "body" in exchange:
        return [head + body]
    last = b"data: [DONE]\n\n" if endpoint == "chat" and exchange.get("ends", True) else b""
    events = [frame(written(endpoint, event)) for event in exchange["events"]]
    return [head, *events, (frame(last) if last else b"") + END]


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_conversation_is_read_as_it_went(name: str) -> None:
    """On one connection, as a user has it: a refusal does not end it."""
    conversation = CONVERSATIONS[name]
    endpoint, exchanges = conversation["endpoint"], conversation["exchanges"]
    dialect = DIALECTS[endpoint]
    with WireServer(*(script(endpoint, exchange) for exchange in exchanges)) as server:
        access = access_to(server.url, endpoint, (), KEYS)
        client = Client(server.url, access=access)
        for exchange in exchanges:
            call = Call(dialect.path(REQUEST), msgspec.json.encode(dialect.body(REQUEST)), True, dialect)
            seen = client.request(due(0, call))
            expected = exchange["expected"]
            assert {field: getattr(seen, field) for field in expected} == expected, exchange["what"]
        client.close()
    assert all(b"k" in request.partition(b"\r\n\r\n")[0] for request in server.requests), "each carries the key"
