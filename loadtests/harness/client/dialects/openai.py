"""OpenAI's chat and text completions, which most servers of open models implement.

Servers differ in these ways: reasoning in `reasoning_content` or `reasoning`; role-only, empty and usage-only chunks;
several tokens in a chunk; content as a list of parts (with reasoning among them in Mistral's servers); errors inside a
stream; a missing last blank line.
https://platform.openai.com/docs/api-reference/chat/streaming
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import accumulate
from typing import Any, ClassVar

import msgspec

from loadtests.harness.client.dialects.dialect import Dialect, ModelRequest, without_none
from loadtests.harness.client.event_frame import UNREADABLE
from loadtests.harness.client.model_answer import Answer, Moment, Reported, message_of, token_count

DONE = b"[DONE]"
MIN_JSON = 10  # bytes; a shorter event may be [DONE] with blanks
ANSWERS = frozenset({"content", "refusal", "tool_calls", "function_call", "audio"})
THOUGHTS = frozenset({"reasoning_content", "reasoning", "reasoning_details", "thinking"})


class Choice(msgspec.Struct, gc=False):
    delta: Any = None
    message: Any = None
    text: str | None = None  # text completions
    logprobs: Any = None
    finish_reason: Any = None


class Usage(msgspec.Struct, gc=False):
    prompt_tokens: Any = None
    completion_tokens: Any = None
    prompt_tokens_details: Any = None
    completion_tokens_details: Any = None
    reasoning_tokens: Any = None  # some servers report it here


class Document(Reported, gc=False):
    """An event's data, or the whole body of an answer that is not streamed."""

    choices: list[Choice] | None = None
    usage: Usage | None = None
    timing: Any = None


DECODER = msgspec.json.Decoder(Document)


def decode(data: bytes) -> Document:
    try:
        return DECODER.decode(data)
    except UNREADABLE:  # JSON allows half a surrogate pair in a chunk, msgspec does not
        return msgspec.convert(json.loads(data), Document, strict=False)


class CompletionAnswer(Answer):
    answers = ANSWERS
    thoughts = THOUGHTS

    def event(self, data: bytes, kind: bytes, moment: Moment) -> None:
        if len(data) <= MIN_JSON and data.strip() == DONE:
            self.done = moment
            return
        if kind == b"error":
            self._fail(message_of(data), moment)
            return
        document = decode(data)
        if document.usage is not None or document.timing is not None or document.choices is None or document.error:
            self._facts(document, moment)
        thoughts, answers = None, None
        for choice in document.choices or ():
            if choice.logprobs is not None:
                self._likelihoods(choice.logprobs)
            if choice.finish_reason:  # only in the last chunk: save the call for the others
                self._finish(choice.finish_reason)
            delta = choice.delta
            if type(delta) is dict and len(delta) == 1 and type(delta.get("content")) is str:  # most chunks
                thought, answered = None, delta["content"]
            else:
                thought, answered = self._choice_parts(choice)
            thoughts = thoughts or thought
            answers = answered if answers is None else answers + (answered or "")
        if thoughts or answers:
            if not self.chunks and document.usage is not None:  # some servers count in every chunk
                self.first_chunk_tokens = token_count(document.usage.completion_tokens) or None
            self._generated(thoughts, answers, moment)

    def document(self, body: bytes, moment: Moment) -> None:
        document = decode(body)
        self._facts(document, moment)
        for choice in document.choices or ():
            self._finish(choice.finish_reason)
            self._contained(*self._choice_parts(choice))
            self._likelihoods(choice.logprobs)
        if document.choices is None:
            self._fail("the answer has no `choices`", moment)

    def _choice_parts(self, choice: Choice) -> tuple[str | None, str | None]:
        content = choice.message if choice.delta is None else choice.delta
        if content is None:
            return None, choice.text
        return self._parts(content if isinstance(content, dict) else {"content": content})

    def _likelihoods(self, document: Any) -> None:
        """Take log-probabilities: chat has an object for each token, text completions have parallel lists."""
        match document:
            case {"content": list(entries)}:
                pairs = [(entry.get("token"), entry.get("logprob")) for entry in entries if isinstance(entry, dict)]
            case {"tokens": list(tokens), "token_logprobs": list(logprobs)}:
                pairs = list(zip(tokens, logprobs, strict=False))
            case _:
                return
        valid = [
            (token, log) for token, value in pairs if isinstance(token, str) and (log := _logprob(value)) is not None
        ]
        before = self.token_ends[-1] if self.token_ends else 0
        self.token_ends += tuple(accumulate((len(token) for token, _ in valid), initial=before))[1:]
        self.logprobs += tuple(log for _, log in valid)

    def _facts(self, document: Document, moment: Moment) -> None:
        """Take the usage, timing and errors of an event or of a whole answer."""
        if document.is_error:
            self._fail(document.sentence, moment)
        if (usage := document.usage) is not None:
            self._count(
                prompt_tokens=token_count(usage.prompt_tokens),
                reported_tokens=token_count(usage.completion_tokens),
                cached_tokens=detail(usage.prompt_tokens_details, "cached_tokens"),
                reasoning_tokens=detail(usage.completion_tokens_details, "reasoning_tokens", usage.reasoning_tokens),
            )
        if isinstance(document.timing, dict):
            self.queue = _seconds(document.timing.get("queue"))
            self.prefill = _seconds(document.timing.get("prefill"))
            self.decode = _seconds(document.timing.get("decode"))


class OpenAI(Dialect):
    """The common part of OpenAI's APIs."""

    key_variable = "OPENAI_API_KEY"
    answer: ClassVar[type[Answer]] = CompletionAnswer
    fields: ClassVar[Mapping[str, str]] = {name: name for name in ("temperature", "seed", "ignore_eos", "logprobs")}

    def _body(self, request: ModelRequest, limit: str, **asked: Any) -> dict[str, Any]:
        with_usage = {"include_usage": True} if request.streamed and request.stream_usage else None
        return {
            "model": request.model,
            **asked,
            **self.options(request),
            limit: request.max_tokens,
            **without_none(stream=request.streamed or None, stream_options=with_usage),
        }


class ChatCompletions(OpenAI):
    def path(self, request: ModelRequest) -> str:
        return "/v1/chat/completions"

    def body(self, request: ModelRequest) -> dict[str, Any]:
        messages = [{"role": message.role, "content": message.text} for message in request.messages]
        return self._body(request, request.max_tokens_field, messages=messages)


class TextCompletions(OpenAI):
    """A conversation becomes one text; token ids are sent unchanged."""

    def options(self, request: ModelRequest) -> dict[str, Any]:
        options = super().options(request)
        return options | {"logprobs": 1} if "logprobs" in options else options  # the number of candidates

    def path(self, request: ModelRequest) -> str:
        return "/v1/completions"

    def body(self, request: ModelRequest) -> dict[str, Any]:
        ids = [part for part in request.prompt if isinstance(part, int)]
        text = "\n\n".join(part.text for part in request.prompt if not isinstance(part, int))
        return self._body(request, "max_tokens", prompt=ids or text)


def _logprob(value: Any) -> float | None:
    """Return a finite number; servers with broken weights send NaN, which a record cannot have."""
    return float(value) if isinstance(value, int | float) and -1e6 < value < 1e6 else None


def _seconds(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e9 else None


def detail(details: Any, name: str, otherwise: Any = None) -> int | None:
    count = token_count(details.get(name)) if isinstance(details, dict) else None
    return token_count(otherwise) if count is None else count
