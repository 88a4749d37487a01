"""The same answer in every dialect: `ANSWERS[endpoint]` are the writes of a server that speaks it."""

from __future__ import annotations

import json
import struct
from binascii import crc32
from dataclasses import dataclass
from typing import Any

from tests.support.servers.wire_script import DONE, delta, event, finish, json_answer

WORDS = ("once", " upon", " a time")
THOUGHT = "hm"
PROMPT_TOKENS, CACHED_TOKENS, OUTPUT_TOKENS = 42, 10, 9


@dataclass(frozen=True, slots=True)
class Spoken:
    """A stream is `before`, `thought`, one write for each word, and `after`; `whole` is a complete response."""

    media_type: str
    before: bytes
    thought: bytes
    words: tuple[bytes, ...]
    after: bytes
    whole: bytes
    error: bytes  # in the middle of a stream: "too busy"

    @property
    def head(self) -> bytes:
        return f"HTTP/1.1 200 OK\r\nContent-Type: {self.media_type}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()


def aws_frame(payload: object, **headers: str) -> bytes:
    """Return an event-stream frame; `event_type="metadata"` is the header `:event-type`."""
    content = json.dumps(payload).encode()
    lines = b""
    for name, value in ({"message_type": "event"} | headers | {"content_type": "application/json"}).items():
        key = f":{name.replace('_', '-')}".encode()
        lines += bytes([len(key)]) + key + b"\x07" + struct.pack(">H", len(value)) + value.encode()
    prelude = struct.pack(">II", 16 + len(lines) + len(content), len(lines))
    prelude += struct.pack(">I", crc32(prelude))
    frame = prelude + lines + content
    return frame + struct.pack(">I", crc32(frame))


def named(kind: str, **fields: Any) -> bytes:
    """Return an event that names its type twice, as OpenAI's Responses and Anthropic's Messages do."""
    return f"event: {kind}\n".encode() + event({"type": kind, **fields})


def whole(document: object) -> bytes:
    return json_answer("200 OK", document)


def _openai_usage() -> dict[str, Any]:
    return {
        "prompt_tokens": PROMPT_TOKENS, "completion_tokens": OUTPUT_TOKENS,
        "prompt_tokens_details": {"cached_tokens": CACHED_TOKENS},
    }  # fmt: skip


def _response(status: str) -> dict[str, Any]:
    return {
        "id": "r", "object": "response", "status": status, "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "output": [
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": THOUGHT}]},
            {"type": "message", "content": [{"type": "output_text", "text": "".join(WORDS)}]},
        ],
        "usage": {
            "input_tokens": PROMPT_TOKENS, "input_tokens_details": {"cached_tokens": CACHED_TOKENS},
            "output_tokens": OUTPUT_TOKENS, "output_tokens_details": {"reasoning_tokens": 1},
        },
    }  # fmt: skip


_ANTHROPIC_USAGE = {
    "input_tokens": PROMPT_TOKENS - CACHED_TOKENS - 2, "cache_read_input_tokens": CACHED_TOKENS,
    "cache_creation_input_tokens": 2,
}  # fmt: skip
_BEDROCK_USAGE = {
    "inputTokens": PROMPT_TOKENS - CACHED_TOKENS, "outputTokens": OUTPUT_TOKENS, "totalTokens": 51,
    "cacheReadInputTokens": CACHED_TOKENS,
}  # fmt: skip
SSE = "text/event-stream; charset=utf-8"
ANSWERS = {
    "chat": Spoken(
        SSE,
        before=delta(role="assistant", content=""),
        thought=delta(reasoning_content=THOUGHT),
        words=tuple(delta(content=word) for word in WORDS),
        after=finish("length") + event({"choices": [], "usage": _openai_usage()}) + DONE,
        whole=whole({
            "choices": [{
                "message": {"role": "assistant", "content": "".join(WORDS), "reasoning_content": THOUGHT},
                "finish_reason": "length",
            }],
            "usage": _openai_usage(),
        }),
        error=event({"error": {"message": "too busy", "type": "server_error"}}),
    ),
    "responses": Spoken(
        SSE,
        before=named("response.created", response={"status": "in_progress", "usage": None})
        + named("response.output_item.added", item={"type": "message", "content": []}),
        thought=named("response.reasoning_text.delta", delta=THOUGHT),
        words=tuple(named("response.output_text.delta", delta=word, content_index=0) for word in WORDS),
        after=named("response.output_text.done", text="".join(WORDS))
        + named("response.incomplete", response=_response("incomplete")),
        whole=whole(_response("incomplete")),
        error=named("error", code="server_error", message="too busy"),
    ),
    "messages": Spoken(
        SSE,
        before=named("message_start", message={"role": "assistant", "content": [],
                                               "usage": _ANTHROPIC_USAGE | {"output_tokens": 1}})
        + named("content_block_start", index=0, content_block={"type": "thinking", "thinking": ""})
        + named("ping"),
        thought=named("content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": THOUGHT}),
        words=tuple(
            named("content_block_delta", index=1, delta={"type": "text_delta", "text": word}) for word in WORDS
        ),
        after=named("content_block_stop", index=1)
        + named("message_delta", delta={"stop_reason": "max_tokens"}, usage={"output_tokens": OUTPUT_TOKENS})
        + named("message_stop"),
        whole=whole({
            "type": "message", "role": "assistant", "stop_reason": "max_tokens",
            "content": [{"type": "thinking", "thinking": THOUGHT}, {"type": "text", "text": "".join(WORDS)}],
            "usage": _ANTHROPIC_USAGE | {"output_tokens": OUTPUT_TOKENS},
        }),
        error=named("error", error={"type": "overloaded_error", "message": "too busy"}),
    ),
    "bedrock": Spoken(
        "application/vnd.amazon.eventstream",
        before=aws_frame({"role": "assistant", "p": "ab"}, event_type="messageStart"),
        thought=aws_frame(
            {"contentBlockIndex": 0, "delta": {"reasoningContent": {"text": THOUGHT}}, "p": "abc"},
            event_type="contentBlockDelta",
        ),
        words=tuple(
            aws_frame({"contentBlockIndex": 1, "delta": {"text": word}, "p": "a"}, event_type="contentBlockDelta")
            for word in WORDS
        ),
        after=aws_frame({"contentBlockIndex": 1}, event_type="contentBlockStop")
        + aws_frame({"stopReason": "max_tokens"}, event_type="messageStop")
        + aws_frame({"metrics": {"latencyMs": 5}, "usage": _BEDROCK_USAGE}, event_type="metadata"),
        whole=whole({
            "output": {"message": {"role": "assistant", "content": [
                {"reasoningContent": {"reasoningText": {"text": THOUGHT}}}, {"text": "".join(WORDS)},
            ]}},
            "stopReason": "max_tokens", "usage": _BEDROCK_USAGE,
        }),
        error=aws_frame({"message": "too busy"}, message_type="exception", exception_type="throttlingException"),
    ),
}  # fmt: skip
