"""What surrounds the text in the events of one answer.

Nearly all events of a long answer differ in nothing but their text. What is around it is read once, with all that it
may say; of the events after it only the text is decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import NamedTuple

import msgspec

UNREADABLE = (ValueError, RecursionError)  # of decoders: JSON that is malformed, of other types, or nested too deeply
BEGIN, END = b"data: ", b"\n\n"  # of an event that may have a frame
_decode = msgspec.json.Decoder(str).decode


class EventFrame(NamedTuple):
    """The data of an event before its text and after it. The text is a JSON string, its quotes included."""

    head: bytes
    tail: bytes

    def around(self, text: str) -> bytes:
        return self.head + encode_basestring_ascii(text).encode() + self.tail

    def texts(self, bodies: Sequence[bytes]) -> list[str]:
        """Those of the first bodies, as long as each is one event that has this frame and a text that is not empty."""
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
    """Of an event's `data` that says `text`. Servers escape what is not ASCII, or write it as it is."""
    for encode in (encode_basestring_ascii, encode_basestring):
        head, found, tail = data.partition(encode(text).encode("utf-8", "replace"))
        if found:
            return EventFrame(head, tail)
    return None
