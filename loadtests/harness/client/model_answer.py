"""The contents of one answer: the events with generated content, and when each of them arrived.

A dialect (`dialects/`) subclasses `Answer` and reads the events of its API. Any text in a delta is content: text,
reasoning, tool calls, refusals, and unknown fields. Counts and finish reasons have OpenAI's names in all dialects.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from operator import itemgetter
from typing import Any, ClassVar, Protocol

import msgspec

from enginebench.records.plain_text import plain
from loadtests.harness.client.event_frame import BEGIN, END, UNREADABLE, EventFrame, frame_of
from loadtests.harness.client.limits import LIMIT, MAX_CHUNKS, TOO_LONG
from loadtests.harness.client.sse import Event, EventReader

DETAIL_CHARACTERS = 300
CUT = "…"  # at the end of a text that was shortened
MAX_TOKENS = 10**9  # limit of one request's answer
METADATA = {
    *("annotations", "call_id", "citation", "citations", "data", "encrypted_content", "format", "id", "index"),
    *("object", "redactedContent", "role", "signature", "status", "toolUseId", "type"),
}
"""Fields of a delta with text that was not generated."""
ARGUMENTS = {"arguments", "input"}  # arguments of a tool: JSON as text, or as an object
TYPED = {"content", "text"}  # fields with only text or parts of it
THOUGHT_TYPES = ("reasoning", "thinking")  # prefixes of the types of reasoning parts
THOUGHT_STARTS = ("<think", "<thought", "<reason", "[THINK]", "◁think▷")  # begin reasoning inside the answer's text
THOUGHT_END = re.compile(r"</(?:think|thought|reason)\w*>?|\[/THINK\]|◁/think▷")
MAX_NAMES, NAME_CHARACTERS = 5, 40  # limits on the names of unknown fields
MIN_FRAMED = 4  # events for which a frame is worth its cost
MAX_FRAMES = 4  # unsuccessful searches: in some answers, events differ in more than their text
OF_TEXT = {"chunks", "kernel", "user", "first_out", "_events", "_spoken", "_text", "_thought"}
"""Attributes that an event with only text changes."""

Moment = tuple[int | None, int]
"""When a read's last bytes arrived: the kernel's wall-clock stamp, if any, and the monotonic user-space stamp."""


def without_thoughts(text: str) -> str:
    """Leave out reasoning that a server leaves inside the text of an answer: all of the text if it did not end."""
    if ends := [match.end() for match in THOUGHT_END.finditer(text)]:
        return text[ends[-1] :].lstrip()
    return "" if text.lstrip().startswith(THOUGHT_STARTS) else text


class Reader(Protocol):
    """A reader that splits a stream's body into events, however its bytes are divided into reads."""

    @property
    def in_the_middle(self) -> bool:
        """Return whether an event has begun and not ended."""

    @property
    def unframed(self) -> bytes:
        """Return the beginning of bytes outside of events, such as an error that a server writes as plain text."""

    def feed(self, data: bytes) -> list[Event]: ...

    def close(self) -> list[Event]:
        """Return the last events, when the stream has ended properly."""


class Answer:
    """An answer: feed it the body's pieces with the moment of each, then read the fields."""

    media_type: ClassVar[str] = "text/event-stream"
    last_event: ClassVar[bytes] = b"[DONE]"
    """Bytes that occur in the stream's last event and in few others: a read with them is parsed without delay."""
    document_is: ClassVar[str] = "a completion"
    """The expected document if the answer was not streamed."""
    finish_reasons: ClassVar[Mapping[str, str]] = {}
    """The API's finish reasons, with OpenAI's names for them; unknown reasons are not changed."""

    answers: ClassVar[frozenset[str]] = frozenset()
    """Fields of a delta that contain the answer."""
    thoughts: ClassVar[frozenset[str]] = frozenset()
    """Fields with reasoning, at any depth of a delta."""

    token_ends: tuple[int, ...] = ()  # positions in the text, in characters
    logprobs: tuple[float, ...] = ()
    """Log-probabilities of the answer's tokens, if the server sent them."""

    def __init__(self) -> None:
        self.chunks = 0  # content chunks
        self.kernel = array("q")  # wall-clock stamp of each content chunk, 0 where the kernel gave none
        self.user = array("q")
        self.first_out: int | None = None  # index of the first chunk with non-reasoning content
        self.merged_first = False
        self.first_chunk_tokens: int | None = None
        self.prompt_tokens: int | None = None
        self.reported_tokens: int | None = None  # output tokens by the server's count
        self.cached_tokens: int | None = None
        self.reasoning_tokens: int | None = None
        self.queue: float | None = None
        self.prefill: float | None = None
        self.decode: float | None = None
        self.finish_reason: str | None = None
        self.done: Moment | None = None  # when the stream's end marker came
        self.error: str | None = None  # malformed data, or the error that the stream itself reported
        self.error_at: Moment | None = None
        self.unknown_fields: tuple[str, ...] = ()  # unknown fields with text
        self._thought = False  # a chunk had reasoning
        self._text: list[str] = []
        self._spoken: list[str] = []
        self._events = self.reader()
        self._frames_left = MAX_FRAMES
        self._measured = self._length = 0  # texts, and their characters
        self._speaks = False  # the text in the frame is not reasoning

    # Methods of a dialect. If one raises because it cannot read the data, that is the answer's error.

    @staticmethod
    def reader() -> Reader:
        return EventReader()

    def event(self, data: bytes, kind: bytes, moment: Moment) -> None:
        """Take one event of a stream."""
        raise NotImplementedError

    def document(self, body: bytes, moment: Moment) -> None:
        """Take the body of an answer that was not streamed."""
        raise NotImplementedError

    # The contents.

    @property
    def text(self) -> str:
        """Return all generated text, reasoning included."""
        return writable("".join(self._text))

    @property
    def spoken(self) -> str:
        """Return the generated text without the reasoning, to continue a conversation."""
        return writable("".join(self._spoken))

    @property
    def unframed(self) -> bytes:
        return self._events.unframed

    @property
    def unseen_tokens(self) -> int:
        """Return the output tokens without a chunk: reasoning that the server counts but does not send."""
        reasoning, reported = self.reasoning_tokens or 0, self.reported_tokens or 0
        if not reasoning or self._thought or self.chunks > reported - reasoning:
            return 0
        text = "".join(self._text)
        return 0 if THOUGHT_END.search(text) else reasoning

    @property
    def output_tokens(self) -> int | None:
        """Return the server's count; `None` if it is too low: each chunk has at least one token."""
        reported, received = self.reported_tokens, max(self.chunks, len(self._text) > 0)
        return None if reported is None or reported - self.unseen_tokens < received else reported

    @property
    def first_tokens(self) -> int | None:
        """Return the tokens of the first chunk, if the server reports them and each later chunk can have at least one
        token."""
        first, output = self.first_chunk_tokens, self.output_tokens
        if not self.chunks or output is None:
            return first
        most = output - self.unseen_tokens - (self.chunks - 1)
        return first if first is not None and first <= most else (1 if most == 1 else None)

    def feed(self, body: bytes, moment: Moment) -> None:
        """Take the part of a stream's body from one read."""
        try:
            events = self._events.feed(body)
        except ValueError as error:
            self._fail(str(error), moment)
            return
        if self.chunks:
            for data, kind in events:
                self._take(data, kind, moment)
            return
        for position, (data, kind) in enumerate(events, 1):
            before = self.chunks
            self._take(data, kind, moment)
            if self.chunks and not before:
                self.merged_first = position < len(events) or self._events.in_the_middle

    def feed_all(self, bodies: Sequence[bytes], moments: Sequence[Moment]) -> None:
        """Take the parts of a stream's body from many reads, most of which differ only in their text."""
        fed = 0
        while fed < len(bodies):
            body, chunks = bodies[fed], self.chunks
            self.feed(body, moments[fed])
            fed += 1
            if len(bodies) - fed < MIN_FRAMED or self.chunks != chunks + 1 or not self._frames_left:
                continue
            frame = self._frame_of(body[len(BEGIN) : -len(END)])
            texts = frame.texts(bodies[fed:]) if frame is not None else []
            if not texts:
                self._frames_left -= 1
                continue
            self._text += texts
            if self._speaks:
                self._spoken += texts
            self.chunks += len(texts)
            kernel, user = zip(*moments[fed : fed + len(texts)], strict=True)
            self.kernel.extend(kernel if all(kernel) else [stamp or 0 for stamp in kernel])
            self.user.extend(user)
            fed += len(texts)

    def _frame_of(self, data: bytes) -> EventFrame | None:
        """Return the frame of the last event, if the event has only text. To check this, feed an empty answer the event
        with another text."""
        text = self._text[-1]
        frame = frame_of(data, text)
        if frame is not None:
            trial, trial_text = type(self)(), text + "?"
            trial._take(frame.around(trial_text), b"", (0, 0))
            without_text, empty = self._attributes_without_text()
            if trial._text == [trial_text] and without_text(vars(trial)) == empty:
                self._speaks = bool(trial._spoken)
                return frame
        return None

    @classmethod
    @cache
    def _attributes_without_text(cls) -> tuple[Callable[[Any], Any], Any]:
        """Return a getter for an answer's attributes that do not depend on its text, and an empty answer's values."""
        empty = vars(cls())
        without_text = itemgetter(*(empty.keys() - OF_TEXT))
        return without_text, without_text(empty)

    def check_length(self, moment: Moment) -> None:
        """Fail an answer that is longer than any model's, and drop its text. Call this for large answers."""
        self._length += sum(map(len, self._text[self._measured :]))
        self._measured = len(self._text)
        if self._length > LIMIT:
            self._fail(f"the answer's text {TOO_LONG}", moment)
            self._text, self._spoken, self._measured = [], [], 0
        elif max(self.chunks, len(self.logprobs)) > MAX_CHUNKS:
            self._fail(f"the answer has more than {MAX_CHUNKS} chunks", moment)

    def close(self, moment: Moment) -> None:
        """Take an event that lacks its last blank line, when the stream has ended properly."""
        for data, kind in self._events.close():
            self._take(data, kind, moment)

    def whole(self, body: bytes, moment: Moment) -> None:
        """Take the body of an answer that was not streamed. It has no chunks: `chunks` stays 0."""
        try:
            self.document(body, moment)
        except UNREADABLE as error:
            self._fail(f"the answer is not {self.document_is} ({error})", moment)

    def _take(self, data: bytes, kind: bytes, moment: Moment) -> None:
        if self.done is not None or self.error is not None:
            return
        try:
            self.event(data, kind, moment)
        except UNREADABLE as error:
            shown = data[:80].decode("utf-8", "replace")
            self._fail(f"an event cannot be read ({error}): {shown}", moment)

    # Helpers of dialects.

    def _parts(self, delta: Mapping[str, Any]) -> tuple[str | None, str | None]:
        """Return the reasoning and the other generated text. Text of unknown fields counts as reasoning, because it is
        not the answer."""
        thought: str | None = None
        answered: str | None = None
        for name, value in delta.items():
            if not value or name in METADATA:
                continue
            if type(value) is str and name in self.answers:
                answered = value if answered is None else answered + value
                continue
            own_thought, own_answer = "", ""
            for text, is_answer in self._texts(name, value, None):
                if is_answer:
                    own_answer += text
                else:
                    own_thought += text
            if own_answer:
                answered = (answered or "") + own_answer
            if own_thought != thought:  # some servers send reasoning under two names
                thought = (thought or "") + own_thought
        return thought or None, answered

    def _texts(self, name: str, value: Any, is_answer: bool | None) -> Iterator[tuple[str, bool]]:
        """Yield all texts within a field, and whether each belongs to the answer. `is_answer` is the decision of an
        outer field, if any."""
        if name in self.thoughts:
            is_answer = False
        elif is_answer is None and name in self.answers:
            is_answer = True
        if name in ARGUMENTS and isinstance(value, dict):
            value = msgspec.json.encode(value).decode() if value else ""
        if isinstance(value, str):
            if value:
                if is_answer is None:
                    self._note_unknown(name)
                yield value, bool(is_answer)
        elif isinstance(value, list):
            for part in value:
                yield from self._texts(name, part, is_answer)
        elif isinstance(value, dict):
            if str(value.get("type")).startswith(THOUGHT_TYPES):
                is_answer = False
            for inner, part in value.items():
                if inner not in METADATA:
                    yield from self._texts(inner, part, is_answer)
        elif value is not None and name in TYPED:
            raise ValueError(f"`{name}` is no text")

    def _note_unknown(self, name: str) -> None:
        name = shorten(name)[:NAME_CHARACTERS]
        if name not in self.unknown_fields and len(self.unknown_fields) < MAX_NAMES:
            self.unknown_fields += (name,)

    def _generated(self, thought: str | None, answered: str | None, moment: Moment) -> None:
        """Take a chunk with reasoning, other content, or both."""
        if thought:
            self._thought = True
            self._text.append(thought)
        if answered:
            self._text.append(answered)
            self._spoken.append(answered)
            if self.first_out is None:
                self.first_out = self.chunks
        self.kernel.append(moment[0] or 0)
        self.user.append(moment[1])
        self.chunks += 1

    def _contained(self, thought: str | None, answered: str | None) -> None:
        """Take a part of an answer that was not streamed."""
        self._thought = self._thought or bool(thought)
        self._text += filter(None, (thought, answered))
        self._spoken += filter(None, (answered,))

    def _count(self, **counts: int | None) -> None:
        """Take counts, which are cumulative. If a later event leaves a count out or reports 0, the earlier one stays. A
        prompt is never empty."""
        for name, count in counts.items():
            if count or (count == 0 and name != "prompt_tokens" and getattr(self, name) is None):
                setattr(self, name, count)

    def _finish(self, reason: Any) -> None:
        if reason and isinstance(reason, str):
            self.finish_reason = plain(shorten(self.finish_reasons.get(reason, reason)))

    def _fail(self, detail: str, moment: Moment) -> None:
        if self.error is None:
            self.error, self.error_at = shorten(detail), moment


class Reported(msgspec.Struct, gc=False):
    """The fields with a server's error: OpenAI's and Anthropic's `error`, older servers' and Amazon's `message`."""

    error: Any = None
    message: Any = None
    choices: Any = None
    type: Any = None

    @property
    def is_error(self) -> bool:
        return bool(self.error) or (self.choices is None and isinstance(self.message, str) and self.type != "message")

    @property
    def sentence(self) -> str:
        match self.error:
            case {"message": str(message)} | str(message):
                return message
            case None if isinstance(self.message, str):
                return self.message
            case None:
                return "the server reported an error without a message"
            case error:
                return str(error)


REPORTED = msgspec.json.Decoder(Reported)


def message_of(body: bytes) -> str:
    """Return the JSON message in the body of an HTTP error, or the text of the body."""
    return error_in(body) or shorten(body[: 4 * DETAIL_CHARACTERS].decode("utf-8", "replace"))


def error_in(body: bytes) -> str | None:
    """Return the error that a JSON document reports; `None` without one."""
    try:
        reported = REPORTED.decode(body)
    except UNREADABLE:
        try:
            reported = msgspec.convert(json.loads(body), Reported)
        except UNREADABLE:
            return None
    return shorten(reported.sentence) if reported.is_error else None


def shorten(text: str) -> str:
    """Shorten to one line of at most `DETAIL_CHARACTERS`."""
    line = writable(" ".join(text.split()))
    return line if len(line) <= DETAIL_CHARACTERS else line[: DETAIL_CHARACTERS - len(CUT)] + CUT


def writable(text: str) -> str:
    """Return text that UTF-8 can encode. JSON's escapes may have cut a character in two: neighbouring halves are
    joined, single ones replaced."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def token_count(value: Any) -> int | None:
    """Return a server's number of tokens; `None` if it is invalid, so that no sum or rate is absurd."""
    with suppress(TypeError, ValueError, OverflowError):
        number = float(value)
        if number.is_integer() and 0 <= number <= MAX_TOKENS and not isinstance(value, bool):
            return int(number)
    return None
