"""Amazon Bedrock's Converse API: binary event frames, and requests signed with AWS credentials.

    AWS_PROFILE=… enginebench run concurrent --endpoint bedrock --model MODEL_ID \
        --url https://bedrock-runtime.us-east-1.amazonaws.com

https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, ClassVar
from urllib.parse import quote

import msgspec

from enginebench.settings.schema import UserMistake
from loadtests.harness.client.dialects.amazon_frames import FrameReader
from loadtests.harness.client.dialects.aws import aws_signer
from loadtests.harness.client.dialects.dialect import Dialect, ModelRequest, Signer
from loadtests.harness.client.model_answer import Answer, Moment, Reader, message_of, token_count

INSTALL = "pip install 'enginebench[bedrock]', or uv tool install 'enginebench[bedrock]'"
FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
    "content_filtered": "content_filter",
    "guardrail_intervened": "content_filter",
}


class Usage(msgspec.Struct, gc=False, rename="camel"):
    """`inputTokens` does not include tokens that were read from the prompt cache or written to it."""

    input_tokens: Any = None
    output_tokens: Any = None
    cache_read_input_tokens: Any = None
    cache_write_input_tokens: Any = None


class ConverseEvent(msgspec.Struct, gc=False, rename="camel"):
    delta: dict[str, Any] | None = None
    start: dict[str, Any] | None = None
    stop_reason: str | None = None
    usage: Usage | None = None


class Spoken(msgspec.Struct, gc=False):
    content: list[dict[str, Any]] = []


class Output(msgspec.Struct, gc=False):
    message: Spoken | None = None


class Whole(msgspec.Struct, gc=False, rename="camel"):
    output: Output | None = None
    stop_reason: str | None = None
    usage: Usage | None = None


EVENT, WHOLE = msgspec.json.Decoder(ConverseEvent), msgspec.json.Decoder(Whole)


class ConverseAnswer(Answer):
    answers = frozenset({"text", "toolUse"})
    thoughts = frozenset({"reasoningContent"})
    document_is = "one of Converse"
    finish_reasons = FINISH_REASONS
    media_type = "application/vnd.amazon.eventstream"
    last_event = b"inputTokens"  # in the frame `metadata`

    @staticmethod
    def reader() -> Reader:
        return FrameReader()

    def event(self, data: bytes, kind: bytes, moment: Moment) -> None:
        if kind.startswith((b"exception:", b"error:")):
            name = kind.partition(b":")[2].decode("utf-8", "replace")
            self._fail(": ".join(filter(None, (name, message_of(data)))), moment)
            return
        event = EVENT.decode(data)
        thought, answered = self._parts(event.delta or event.start or {})
        if thought or answered:
            self._generated(thought, answered, moment)
        self._finish(event.stop_reason)
        if kind == b"metadata":
            self._usage(event.usage)
            self.done = moment

    def document(self, body: bytes, moment: Moment) -> None:
        whole = WHOLE.decode(body)
        if whole.output is None or whole.output.message is None:
            self._fail("the answer has no `output.message`", moment)
            return
        self._finish(whole.stop_reason)
        self._usage(whole.usage)
        for block in whole.output.message.content:
            self._contained(*self._parts(block))

    def _usage(self, usage: Usage | None) -> None:
        if usage is None:
            return
        cached = token_count(usage.cache_read_input_tokens)
        self._count(reported_tokens=token_count(usage.output_tokens), cached_tokens=cached)
        if (uncached := token_count(usage.input_tokens)) is not None:
            written = token_count(usage.cache_write_input_tokens)
            self._count(prompt_tokens=uncached + (cached or 0) + (written or 0))


class Converse(Dialect):
    """Bedrock accepts an API key or AWS credentials."""

    key_variable = "AWS_BEARER_TOKEN_BEDROCK"
    answer = ConverseAnswer
    fields: ClassVar[Mapping[str, str]] = {"temperature": "temperature"}

    def path(self, request: ModelRequest) -> str:
        return f"/model/{quote(request.model, safe='')}/converse" + ("-stream" if request.streamed else "")

    def body(self, request: ModelRequest) -> dict[str, Any]:
        system, messages = request.split_system()
        return {
            "messages": [{"role": message.role, "content": [{"text": message.text}]} for message in messages],
            "inferenceConfig": {"maxTokens": request.max_tokens, **self.options(request)},
            **({"system": [{"text": system}]} if system else {}),
        }

    def signer(self, key: str | None, host: str) -> Signer | None:
        if find_spec("botocore") is None:
            raise UserMistake(f"botocore, which reads the streams of Bedrock, is not installed: {INSTALL}.")
        return None if key else aws_signer(host, self.key_variable)
