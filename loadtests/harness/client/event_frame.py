"""The frame around the text in the events of one answer.

Most events of a long answer differ only in their text. The frame is parsed once, with all its fields; of later events,
only the text is decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import NamedTuple

import msgspec

UNREADABLE = (ValueError, RecursionError)  # of decoders: malformed JSON, other types, or nested too deep
BEGIN, END = b"data: ", b"\n\n"  # beginning and end of an event that may have a frame
_decode = msgspec.json.Decoder(str).decode


class EventFrame(NamedTuple):
    """The data of an event before and after its text, a JSON string with its quotes."""

    head: bytes
    tail: bytes

    def around(self, text: str) -> bytes:
        return self.head + encode_basestring_ascii(text).encode() + self.tail

    def texts(self, bodies: Sequence[bytes]) -> list[str]:
        """Return the texts of the bodies before the first that is not a single event with this frame and a text."""
        head, tail = BEGIN + self.head, self.tail + END
        begin, end = len(head), -len(tail)
        texts: list[str] = []
        try:
            for body in bodies:
                if not (body.startswith(head) and body.endswith(tail) and (text := _decode(body[begin:end]))):
                    break
                texts.append(text)
        except UNREADABLE:
            pass
        return texts


def frame_of(data: bytes, text: str) -> EventFrame | None:
    """Return the frame of an event's `data` with `text`; `None` if the text is not in it. Servers may escape characters
    that are not ASCII."""
    for encode in (encode_basestring_ascii, encode_basestring):
        head, encoded_text, tail = data.partition(encode(text).encode("utf-8", "replace"))
        if encoded_text:
            return EventFrame(head, tail)
    return None
