"""Anthropic's Messages API: https://docs.anthropic.com/en/api/messages-streaming

Every event names its type: `content_block_delta` has text, thinking or the arguments of a tool, `message_delta` the
finish reason and the tokens so far, and `message_stop` is the last event.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from loadtests.harness.client.dialects.dialect import Dialect, ModelRequest, without_none
from loadtests.harness.client.model_answer import Answer, Moment, error_in, message_of, token_count

VERSION = "2023-06-01"
FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}


class Usage(msgspec.Struct, gc=False):
    """`input_tokens` does not include tokens that were read from the prompt cache or written to it."""

    input_tokens: Any = None
    output_tokens: Any = None
    cache_creation_input_tokens: Any = None
    cache_read_input_tokens: Any = None


class MessageObject(msgspec.Struct, gc=False):
    content: list[dict[str, Any]] | None = None
    usage: Usage | None = None
    stop_reason: str | None = None


class MessageEvent(msgspec.Struct, gc=False):
    type: str | None = None
    delta: dict[str, Any] | None = None
    content_block: dict[str, Any] | None = None
    message: MessageObject | None = None
    usage: Usage | None = None


EVENT, WHOLE = msgspec.json.Decoder(MessageEvent), msgspec.json.Decoder(MessageObject)


class MessageAnswer(Answer):
    answers = frozenset({"text", "partial_json", "name", "input"})
    thoughts = frozenset({"thinking"})
    document_is = "a message"
    finish_reasons = FINISH_REASONS
    last_event = b"message_stop"

    def event(self, data: bytes, kind: bytes, moment: Moment) -> None:
        event = EVENT.decode(data)
        match event.type or kind.decode("ascii", "replace"):
            case "error":
                self._fail(message_of(data), moment)
            case "" if error_in(data) is not None:
                self._fail(message_of(data), moment)
            case "content_block_delta" | "content_block_start":
                thought, answered = self._parts(event.delta or event.content_block or {})
                if thought or answered:
                    self._generated(thought, answered, moment)
            case "message_start" if event.message is not None:
                self._usage(event.message.usage)
            case "message_delta":
                self._usage(event.usage)
                self._finish((event.delta or {}).get("stop_reason"))
            case "message_stop":
                self.done = moment

    def document(self, body: bytes, moment: Moment) -> None:
        message = WHOLE.decode(body)
        if message.content is None:
            self._fail("the answer has no `content`", moment)
        self._usage(message.usage)
        self._finish(message.stop_reason)
        for block in message.content or ():
            self._contained(*self._parts(block))

    def _usage(self, usage: Usage | None) -> None:
        if usage is None:
            return
        cached = token_count(usage.cache_read_input_tokens)
        self._count(reported_tokens=token_count(usage.output_tokens))
        if (uncached := token_count(usage.input_tokens)) is not None:
            written = token_count(usage.cache_creation_input_tokens)
            self._count(cached_tokens=cached, prompt_tokens=uncached + (cached or 0) + (written or 0))


class Messages(Dialect):
    key_variable = "ANTHROPIC_API_KEY"
    answer = MessageAnswer
    fields: ClassVar[Mapping[str, str]] = {"temperature": "temperature"}

    def path(self, request: ModelRequest) -> str:
        return "/v1/messages"

    def body(self, request: ModelRequest) -> dict[str, Any]:
        system, messages = request.split_system()
        return {
            "model": request.model,
            "messages": [{"role": message.role, "content": message.text} for message in messages],
            "max_tokens": request.max_tokens,
            **self.options(request),
            **without_none(system=system or None, stream=request.streamed or None),
        }

    def headers(self, key: str | None) -> dict[str, str]:
        return {"anthropic-version": VERSION, **({"x-api-key": key} if key else {})}
