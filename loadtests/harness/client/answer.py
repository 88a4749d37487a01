"""What one answer contained: which events carried generated content, and when each of them arrived.

A dialect (`dialects/`) subclasses `Answer` and says what an event of its API means. All that a model generates is
content: text, reasoning, tool calls, refusals. Counts and finish reasons are kept under OpenAI's names in all dialects.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from operator import itemgetter
from typing import Any, ClassVar, Protocol

import msgspec

from enginebench.records.plain_text import plain
from loadtests.harness.client.event_frame import BEGIN, END, UNREADABLE, EventFrame, frame_of
from loadtests.harness.client.sse import Event, EventReader

DETAIL_CHARACTERS = 300
CUT = "…"  # at the end of a text that was shortened
DIGEST_BYTES = 8
MOST_TOKENS = 10**9  # of one request
FEW = 4  # events that are read one by one
MOST_FRAMES = 4  # that are looked for without use: in some answers events differ in more than their text
OF_TEXT = {"chunks", "kernel", "user", "first_out", "_events", "_spoken", "_text", "_thought"}
"""What an event changes that says nothing but its text."""

Moment = tuple[int | None, int]
"""When a read's last bytes arrived: the kernel's wall-clock stamp, where there is one; the monotonic user-space one."""


class Reader(Protocol):
    """Splits a stream's body into events, however its bytes are divided into reads."""

    @property
    def in_the_middle(self) -> bool:
        """Whether an event has begun and not ended."""

    @property
    def unframed(self) -> bytes:
        """The beginning of what belongs to no event, such as an error that a server writes as it is."""

    def feed(self, data: bytes) -> list[Event]: ...

    def close(self) -> list[Event]:
        """What is left when the stream has ended as it should."""


class Answer:
    """Feed it the body's pieces with the moment of each, then read the fields."""

    media_type: ClassVar[str] = "text/event-stream"
    last_event: ClassVar[bytes] = b"[DONE]"
    """Bytes that the stream's last event contains and few others: a read with them is parsed without delay."""
    document_is: ClassVar[str] = "a completion"
    """What an answer that was not streamed should be."""
    finish_reasons: ClassVar[Mapping[str, str]] = {}
    """The API's finish reasons, and OpenAI's names for them; others are kept as they are."""

    token_ends: tuple[int, ...] = ()  # in characters of the text
    logprobs: tuple[float, ...] = ()
    """Of the answer's tokens, where they were asked for and given."""

    def __init__(self) -> None:
        self.chunks = 0  # with content
        self.kernel = array("q")  # wall-clock stamp of each content chunk, 0 where the kernel gave none
        self.user = array("q")
        self.first_out: int | None = None  # index of the first chunk with non-reasoning content
        self.merged_first = False
        self.first_chunk_tokens: int | None = None
        self.prompt_tokens: int | None = None
        self.output_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.reasoning_tokens: int | None = None
        self.queue: float | None = None
        self.prefill: float | None = None
        self.decode: float | None = None
        self.finish_reason: str | None = None
        self.done: Moment | None = None  # when the stream's end marker came
        self.error: str | None = None  # malformed data, or the error that the stream itself reported
        self.error_at: Moment | None = None
        self._thought = False  # a chunk showed reasoning
        self._text: list[str] = []
        self._spoken: list[str] = []
        self._events = self.reader()
        self._frames_left = MOST_FRAMES
        self._speaks = False  # the text in the frame is no reasoning

    # What a dialect implements. What it cannot read is the answer's error.

    @staticmethod
    def reader() -> Reader:
        return EventReader()

    def event(self, data: bytes, kind: bytes, moment: Moment) -> None:
        """One event of a stream."""
        raise NotImplementedError

    def document(self, body: bytes, moment: Moment) -> None:
        """The body of an answer that was not streamed."""
        raise NotImplementedError

    # What is given.

    @property
    def text(self) -> str:
        """All that was generated, reasoning included."""
        return writable("".join(self._text))

    @property
    def spoken(self) -> str:
        """What was generated without the reasoning, to continue a conversation."""
        return writable("".join(self._spoken))

    @property
    def unframed(self) -> bytes:
        """The beginning of what a server wrote in place of events."""
        return self._events.unframed

    @property
    def unseen_tokens(self) -> int:
        """Output tokens that no chunk showed: reasoning that the server counts and does not send."""
        return 0 if self._thought else min(self.reasoning_tokens or 0, self.output_tokens or 0)

    def feed(self, body: bytes, moment: Moment) -> None:
        """The part of a stream's body that one read brought."""
        if self.chunks:
            for data, kind in self._events.feed(body):
                self._take(data, kind, moment)
            return
        events = self._events.feed(body)
        for position, (data, kind) in enumerate(events, 1):
            before = self.chunks
            self._take(data, kind, moment)
            if self.chunks and not before:
                self.merged_first = position < len(events) or self._events.in_the_middle

    def feed_all(self, bodies: Sequence[bytes], moments: Sequence[Moment]) -> None:
        """The same for many reads. Nearly all events of a long answer differ in nothing but their text."""
        fed = 0
        while fed < len(bodies):
            body, chunks = bodies[fed], self.chunks
            self.feed(body, moments[fed])
            fed += 1
            if len(bodies) - fed < FEW or self.chunks != chunks + 1 or not self._frames_left:
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
        """Of an event that has come. That it says nothing but its text is shown by an empty answer that is given it
        with another text."""
        text = self._text[-1]
        frame = frame_of(data, text)
        if frame is not None:
            trial, other = type(self)(), text + "?"
            trial._take(frame.around(other), b"", (0, 0))
            others, of_nothing = self._besides_text()
            if trial._text == [other] and others(vars(trial)) == of_nothing:
                self._speaks = bool(trial._spoken)
                return frame
        return None

    @classmethod
    @cache
    def _besides_text(cls) -> tuple[Callable[[Any], Any], Any]:
        """Reads all but the text from the attributes of an answer; and what it reads from an empty one's."""
        empty = vars(cls())
        others = itemgetter(*(empty.keys() - OF_TEXT))
        return others, others(empty)

    def close(self, moment: Moment) -> None:
        """The stream's body has ended as it should: take in an event that lacks its last blank line."""
        for data, kind in self._events.close():
            self._take(data, kind, moment)

    def whole(self, body: bytes, moment: Moment) -> None:
        """The body of an answer that was not streamed. Its chunks cannot be told apart: `chunks` stays 0."""
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
            self._fail(f"an event is not as expected ({error}): {shown}", moment)

    # What a dialect calls.

    def _generated(self, thought: str | None, answered: str | None, moment: Moment) -> None:
        """A chunk with content has come: reasoning, other content, or both."""
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
        """A part of an answer that was not streamed."""
        self._thought = self._thought or bool(thought)
        self._text += filter(None, (thought, answered))
        self._spoken += filter(None, (answered,))

    def _count(self, **counts: int | None) -> None:
        """Counts are cumulative, and a later one may leave out what an earlier one had: the last known ones count."""
        for name, count in counts.items():
            if count is not None:
                setattr(self, name, count)

    def _finish(self, reason: str | None) -> None:
        if reason:
            self.finish_reason = plain(writable(self.finish_reasons.get(reason, reason)))

    def _fail(self, detail: str, moment: Moment) -> None:
        if self.error is None:
            self.error, self.error_at = shorten(detail), moment


class Reported(msgspec.Struct, gc=False):
    """Where servers put an error: OpenAI's and Anthropic's `error`, older servers' and Amazon's `message`."""

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
            case other:
                return str(other)


REPORTED = msgspec.json.Decoder(Reported)


def message_of(body: bytes) -> str:
    """The sentence in the body of an HTTP error: its JSON message, or its text."""
    return error_in(body) or shorten(body[: 4 * DETAIL_CHARACTERS].decode("utf-8", "replace"))


def error_in(body: bytes) -> str | None:
    """The error that a server reports in a whole JSON document; `None` where it reports none."""
    try:
        reported = REPORTED.decode(body)
    except UNREADABLE:
        try:
            reported = msgspec.convert(json.loads(body), Reported)
        except UNREADABLE:
            return None
    return shorten(reported.sentence) if reported.is_error else None


def shorten(text: str) -> str:
    """One line of at most `DETAIL_CHARACTERS`."""
    line = writable(" ".join(text.split()))
    return line if len(line) <= DETAIL_CHARACTERS else line[: DETAIL_CHARACTERS - len(CUT)] + CUT


def writable(text: str) -> str:
    """`text` as UTF-8 can hold it. JSON's escapes may have cut a character in two: halves that follow each other are
    joined, others replaced."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def digest(text: str) -> str:
    """Equal for equal answers."""
    return blake2b(text.encode(), digest_size=DIGEST_BYTES).hexdigest()


def token_count(value: Any) -> int | None:
    """A number of tokens as a server gave it; `None` where it can be none, so that no sum or rate is absurd."""
    with suppress(TypeError, ValueError, OverflowError):
        number = float(value)
        if number.is_integer() and 0 <= number <= MOST_TOKENS and not isinstance(value, bool):
            return int(number)
    return None
