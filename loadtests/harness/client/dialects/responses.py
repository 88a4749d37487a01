"""OpenAI's Responses API: https://platform.openai.com/docs/api-reference/responses-streaming

Every event names its type. Text, reasoning, refusals and tool calls come as `….delta` events; the last event
(`response.completed`, `response.incomplete` or `response.failed`) has the whole answer with its usage.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from loadtests.harness.client.dialects.dialect import ModelRequest, without_none
from loadtests.harness.client.dialects.openai import OpenAI, detail
from loadtests.harness.client.model_answer import Answer, Moment, error_in, message_of, token_count

FINISH_REASONS = {"max_output_tokens": "length", "completed": "stop", "failed": "error"}
DELTA = re.compile(r"response\.(.+)\.delta")
LAST = {"response.completed", "response.incomplete", "response.failed"}


class Part(msgspec.Struct, gc=False):
    """An item of the output, or a part of its content."""

    type: str | None = None
    text: Any = None
    refusal: Any = None
    name: Any = None
    arguments: Any = None
    content: list[Part] | None = None
    summary: list[Part] | None = None


class Usage(msgspec.Struct, gc=False):
    input_tokens: Any = None
    output_tokens: Any = None
    input_tokens_details: Any = None
    output_tokens_details: Any = None
    reasoning_tokens: Any = None


class ResponseObject(msgspec.Struct, gc=False):
    status: str | None = None
    output: list[Part] | None = None
    usage: Usage | None = None
    incomplete_details: Any = None
    error: Any = None


class ResponseEvent(msgspec.Struct, gc=False):
    type: str | None = None
    delta: Any = None
    item: Part | None = None
    response: ResponseObject | None = None


EVENT, WHOLE = msgspec.json.Decoder(ResponseEvent), msgspec.json.Decoder(ResponseObject)


class ResponseAnswer(Answer):
    answers = frozenset(
        (
            *("output_text", "refusal", "function_call_arguments", "custom_tool_call_input", "mcp_call_arguments"),
            *("code_interpreter_call_code", "audio", "audio.transcript"),
        )
    )
    thoughts = frozenset({"reasoning_text", "reasoning_summary_text", "reasoning", "reasoning_summary"})
    document_is = "a response"
    finish_reasons = FINISH_REASONS
    last_event = b"output_tokens"  # only the last event has usage

    def event(self, data: bytes, kind: bytes, moment: Moment) -> None:
        if data == b"[DONE]":  # some servers send it here too
            self.done = moment
            return
        event = EVENT.decode(data)
        name = event.type or kind.decode("ascii", "replace")
        if event.delta and (of_field := DELTA.fullmatch(name)):
            thought, answered = self._parts({of_field[1]: event.delta})
            if thought or answered:
                self._generated(thought, answered, moment)
        elif name == "response.output_item.added" and event.item is not None and isinstance(event.item.name, str):
            self._generated(None, event.item.name, moment)  # the name of a tool
        elif name in LAST and event.response is not None:
            self._facts(event.response, data, moment)
            self.done = moment
        elif name == "error" or (not name and error_in(data) is not None):
            self._fail(message_of(data), moment)

    def document(self, body: bytes, moment: Moment) -> None:
        response = WHOLE.decode(body)
        if response.status is None:
            self._fail("the answer has no `status`", moment)
        self._facts(response, body, moment)
        for item in response.output or ():
            thoughts = [part.text for part in (item.summary or []) if isinstance(part.text, str)]
            parts = [text for part in item.content or () for text in (part.text, part.refusal)]
            text = "".join(part for part in (*parts, item.name, item.arguments) if isinstance(part, str))
            if item.type == "reasoning":
                self._contained("".join(thoughts) + text, None)
            else:
                self._contained(None, text)

    def _facts(self, response: ResponseObject, data: bytes, moment: Moment) -> None:
        details = response.incomplete_details
        reason = details.get("reason") if isinstance(details, dict) else response.status
        self._finish(str(reason) if reason else None)
        if response.error is not None:
            self._fail(message_of(msgspec.json.encode({"error": response.error})), moment)
        if (usage := response.usage) is not None:
            self._count(
                prompt_tokens=token_count(usage.input_tokens),
                reported_tokens=token_count(usage.output_tokens),
                cached_tokens=detail(usage.input_tokens_details, "cached_tokens"),
                reasoning_tokens=detail(usage.output_tokens_details, "reasoning_tokens", usage.reasoning_tokens),
            )


class Responses(OpenAI):
    """`store` is false, because a load test must not leave answers on the server."""

    answer = ResponseAnswer
    fields: ClassVar[Mapping[str, str]] = {"temperature": "temperature"}

    def path(self, request: ModelRequest) -> str:
        return "/v1/responses"

    def body(self, request: ModelRequest) -> dict[str, Any]:
        instructions, messages = request.split_system()
        return {
            "model": request.model,
            "input": [{"role": message.role, "content": message.text} for message in messages],
            "max_output_tokens": request.max_tokens,
            "store": False,
            **self.options(request),
            **without_none(instructions=instructions or None, stream=request.streamed or None),
        }
