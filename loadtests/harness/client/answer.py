"""Parses OpenAI-style answers: which events carry content, and when each of them arrived.

Understands chat and text completions, streamed or not, and servers' variants: reasoning under `reasoning_content`
or `reasoning`, role-only, empty and usage-only chunks, several tokens in a chunk, errors inside a stream, a missing
last blank line. All that a model generates is content: text, reasoning, tool calls, refusals.
"""

from __future__ import annotations

import json
from array import array
from hashlib import blake2b
from typing import Any

import msgspec

from loadtests.harness.client.sse import Event, EventReader

DETAIL_CHARACTERS = 300
DONE = b"[DONE]"
FUNCTION_PARTS = ("name", "arguments")
DIGEST_BYTES = 8

Moment = tuple[int | None, int]
"""When a read's last bytes arrived: the kernel's wall-clock stamp, where there is one; the monotonic user-space one."""


class Text(msgspec.Struct, gc=False):
    """A streamed `delta` or a whole `message`."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: Any = None
    function_call: Any = None

    @property
    def answered(self) -> str | None:
        """What else was generated: text, a refusal, the names and arguments of tools."""
        if self.tool_calls is None and self.function_call is None:
            return self.content or self.refusal
        calls = self.tool_calls if isinstance(self.tool_calls, list) else []
        functions = [call.get("function") for call in calls if isinstance(call, dict)] + [self.function_call]
        parts = [self.content, self.refusal]
        parts += [function.get(key) for function in functions if isinstance(function, dict) for key in FUNCTION_PARTS]
        return "".join(part for part in parts if isinstance(part, str)) or None


class Choice(msgspec.Struct, gc=False):
    delta: Text | None = None
    message: Text | None = None
    text: str | None = None  # text completions
    finish_reason: str | None = None


class Usage(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: Any = None
    completion_tokens_details: Any = None

    @property
    def cached_tokens(self) -> int | None:
        return _count(self.prompt_tokens_details, "cached_tokens")

    @property
    def reasoning_tokens(self) -> int | None:
        return _count(self.completion_tokens_details, "reasoning_tokens")


class Document(msgspec.Struct, gc=False):
    """One event's data, or the whole body of an answer that is not streamed."""

    choices: list[Choice] | None = None
    usage: Usage | None = None
    timing: Any = None
    error: Any = None
    object: Any = None
    message: Any = None


DECODER = msgspec.json.Decoder(Document)


def decode(data: bytes) -> Document:
    """Raises `ValueError`."""
    try:
        return DECODER.decode(data)
    except (msgspec.MsgspecError, RecursionError):
        pass
    try:  # msgspec is stricter than JSON: half a surrogate pair in one chunk is ugly, not malformed
        return msgspec.convert(_with_plain_content(json.loads(data)), Document, strict=False)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from None


def _with_plain_content(given: Any) -> Any:
    """Some servers send content as a list of parts, of which those with a text count."""
    choices = given.get("choices") if isinstance(given, dict) else None
    for choice in choices if isinstance(choices, list) else ():
        for text in (choice.get("delta"), choice.get("message")) if isinstance(choice, dict) else ():
            if isinstance(text, dict) and isinstance(parts := text.get("content"), list):
                words = [part.get("text") for part in parts if isinstance(part, dict)]
                text["content"] = "".join(word for word in words if isinstance(word, str))
    return given


class Answer:
    """Collects what the events contain. Feed it the body's pieces with the moment of each, then read the fields."""

    def __init__(self) -> None:
        self.chunks = 0  # with content
        self.kernel = array("q")  # wall-clock stamp of each content chunk, 0 where the kernel gave none
        self.user = array("q")
        self.first_out: int | None = None  # index of the first chunk with non-reasoning content
        self.merged_first = False
        self.first_chunk_tokens: int | None = None
        self.usage = Usage()
        self.queue: float | None = None
        self.prefill: float | None = None
        self.decode: float | None = None
        self.finish_reason: str | None = None
        self.done: Moment | None = None  # when [DONE] came
        self.error: str | None = None  # malformed data, or the error that the stream itself reported
        self.error_at: Moment | None = None
        self._thought = False  # a chunk showed reasoning
        self._text: list[str] = []
        self._events = EventReader()

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def unseen_tokens(self) -> int:
        """Output tokens that no chunk showed: reasoning that the server counts and keeps to itself."""
        return 0 if self._thought else min(self.usage.reasoning_tokens or 0, self.usage.completion_tokens or 0)

    def feed(self, pieces: list[bytes], moment: Moment) -> None:
        """All pieces of a stream's body that one read brought."""
        if self.chunks:
            for piece in pieces:
                for event in self._events.feed(piece):
                    self._take(event, moment)
            return
        events = [event for piece in pieces for event in self._events.feed(piece)]
        for position, event in enumerate(events, 1):
            before = self.chunks
            self._take(event, moment)
            if self.chunks and not before:
                self.merged_first = position < len(events) or self._events.in_the_middle

    def close(self, moment: Moment) -> None:
        """The stream's body has ended as it should: take in an event that lacks its last blank line."""
        for event in self._events.close():
            self._take(event, moment)

    def whole(self, body: bytes, moment: Moment) -> None:
        """The body of an answer that was not streamed. Its chunks cannot be told apart: `chunks` stays 0."""
        try:
            document = decode(body)
        except ValueError as error:
            self._fail(f"the answer is not a completion ({error})", moment)
            return
        self._facts(document, moment)
        for choice in document.choices or ():
            self.finish_reason = choice.finish_reason or self.finish_reason
            thought, answered = _texts(choice)
            self._thought = self._thought or bool(thought)
            self._text += filter(None, (thought, answered))
        if document.choices is None:
            self._fail("the answer has no `choices`", moment)

    def _take(self, event: Event, moment: Moment) -> None:
        if self.done is not None or self.error is not None:
            return
        data, kind = event
        if data == DONE:
            self.done = moment
            return
        if kind == b"error":
            self._fail(message_of(data), moment)
            return
        try:
            document = decode(data)
        except ValueError as error:
            self._fail(f"an event is not as expected ({error}): {data[:80].decode('utf-8', 'replace')}", moment)
            return
        if document.usage is not None or document.timing is not None or document.choices is None or document.error:
            self._facts(document, moment)
        has_content = False
        for choice in document.choices or ():
            if choice.finish_reason:
                self.finish_reason = choice.finish_reason
            thought, answered = _texts(choice)
            if thought:
                has_content = self._thought = True
                self._text.append(thought)
            if answered:
                has_content = True
                self._text.append(answered)
                if self.first_out is None:
                    self.first_out = self.chunks
        if has_content:
            if not self.chunks and document.usage is not None:  # some servers count along in every chunk
                self.first_chunk_tokens = document.usage.completion_tokens or None
            self.kernel.append(moment[0] or 0)
            self.user.append(moment[1])
            self.chunks += 1

    def _facts(self, document: Document, moment: Moment) -> None:
        """Usage, timing and errors of an event or of a whole answer."""
        if reports_error(document):
            self._fail(error_message(document), moment)
        if document.usage is not None:
            self.usage = document.usage
        if isinstance(document.timing, dict):
            self.queue = _seconds(document.timing.get("queue"))
            self.prefill = _seconds(document.timing.get("prefill"))
            self.decode = _seconds(document.timing.get("decode"))

    def _fail(self, detail: str, moment: Moment) -> None:
        if self.error is None:
            self.error, self.error_at = shorten(detail), moment


def reports_error(document: Document) -> bool:
    """In OpenAI's shape, or as older servers do it: `{"object": "error", "message": …}`."""
    return bool(document.error) or (document.choices is None and isinstance(document.message, str))


def error_message(document: Document) -> str:
    """The server's error message, in OpenAI's shape or a similar one."""
    match document.error:
        case {"message": str(message)} | str(message):
            return message
        case None if isinstance(document.message, str):
            return document.message
        case None:
            return "the server reported an error without a message"
        case other:
            return str(other)


def message_of(body: bytes) -> str:
    """The sentence in the body of an HTTP error: its JSON message, or its text."""
    try:
        document = decode(body)
    except ValueError:
        pass
    else:
        if document.error is not None or isinstance(document.message, str):
            return shorten(error_message(document))
    return shorten(body[: 4 * DETAIL_CHARACTERS].decode("utf-8", "replace"))


def error_in(body: bytes) -> str | None:
    """The error that a server reports in a whole JSON document; `None` where it reports none."""
    try:
        document = decode(body)
    except ValueError:
        return None
    return shorten(error_message(document)) if reports_error(document) else None


def shorten(text: str) -> str:
    """One line of at most `DETAIL_CHARACTERS`."""
    line = " ".join(text.split())
    return line if len(line) <= DETAIL_CHARACTERS else line[: DETAIL_CHARACTERS - 1] + "…"


def _texts(choice: Choice) -> tuple[str | None, str | None]:
    """Reasoning, and what else was generated, of one choice."""
    text = choice.delta or choice.message
    if text is None:
        return None, choice.text
    return text.reasoning_content or text.reasoning, text.answered


def _seconds(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e9 else None


def digest(text: str) -> str:
    """Equal for equal answers."""
    return blake2b(text.encode("utf-8", "replace"), digest_size=DIGEST_BYTES).hexdigest()


def _count(details: Any, name: str) -> int | None:
    value = details.get(name) if isinstance(details, dict) else None
    return value if isinstance(value, int) else None
