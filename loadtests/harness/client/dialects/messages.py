"""Anthropic's Messages API: https://docs.anthropic.com/en/api/messages-streaming

Every event names its type: `content_block_delta` carries text, thinking or the arguments of a tool, `message_delta` the
reason why the answer ended and the tokens so far, `message_stop` is the last one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from loadtests.harness.client.answer import Answer, Moment, error_in, message_of, token_count
from loadtests.harness.client.dialects.dialect import Dialect, ModelRequest, given

VERSION = "2023-06-01"
FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}


class Usage(msgspec.Struct, gc=False):
    """`input_tokens` leaves out what was read from the prompt cache or written to it."""

    input_tokens: Any = None
    output_tokens: Any = None
    cache_creation_input_tokens: Any = None
    cache_read_input_tokens: Any = None


class Delta(msgspec.Struct, gc=False):
    """A part of a content block, a whole block, or what `message_delta` changes."""

    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    name: str | None = None  # of a tool
    input: Any = None
    stop_reason: str | None = None


class MessageObject(msgspec.Struct, gc=False):
    content: list[Delta] | None = None
    usage: Usage | None = None
    stop_reason: str | None = None


class MessageEvent(msgspec.Struct, gc=False):
    type: str | None = None
    delta: Delta | None = None
    content_block: Delta | None = None
    message: MessageObject | None = None
    usage: Usage | None = None


EVENT, WHOLE = msgspec.json.Decoder(MessageEvent), msgspec.json.Decoder(MessageObject)


class MessageAnswer(Answer):
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
                part = event.delta or event.content_block
                if part is not None and (part.thinking or part.text or part.partial_json or part.name):
                    self._generated(part.thinking, part.text or part.partial_json or part.name, moment)
            case "message_start" if event.message is not None:
                self._usage(event.message.usage)
            case "message_delta":
                self._usage(event.usage)
                self._finish(event.delta.stop_reason if event.delta is not None else None)
            case "message_stop":
                self.done = moment

    def document(self, body: bytes, moment: Moment) -> None:
        message = WHOLE.decode(body)
        if message.content is None:
            self._fail("the answer has no `content`", moment)
        self._usage(message.usage)
        self._finish(message.stop_reason)
        for part in message.content or ():
            arguments = msgspec.json.encode(part.input).decode() if part.input else ""
            self._contained(part.thinking, part.text or (part.name or "") + arguments or None)

    def _usage(self, usage: Usage | None) -> None:
        if usage is None:
            return
        cached = token_count(usage.cache_read_input_tokens)
        self._count(output_tokens=token_count(usage.output_tokens))
        if (uncached := token_count(usage.input_tokens)) is not None:
            written = token_count(usage.cache_creation_input_tokens)
            self._count(cached_tokens=cached, prompt_tokens=uncached + (cached or 0) + (written or 0))


class Messages(Dialect):
    """The API has no seed."""

    key_variable = "ANTHROPIC_API_KEY"
    answer = MessageAnswer
    names: ClassVar[Mapping[str, str | None]] = {"seed": None, "ignore_eos": None, "logprobs": None}

    def path(self, request: ModelRequest) -> str:
        return "/v1/messages"

    def body(self, request: ModelRequest) -> dict[str, Any]:
        system, messages = request.apart()
        return {
            "model": request.model,
            "messages": [{"role": message.role, "content": message.text} for message in messages],
            "max_tokens": request.max_tokens,
            **self.options(request),
            **given(system=system or None, stream=request.streamed or None),
        }

    def headers(self, key: str | None) -> dict[str, str]:
        return {"anthropic-version": VERSION, **({"x-api-key": key} if key else {})}
