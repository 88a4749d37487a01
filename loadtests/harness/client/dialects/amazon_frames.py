"""The reader of Amazon's binary event stream, whose frames (headers, a payload, two checksums) botocore parses.

https://smithy.io/2.0/aws/amazon-eventstream.html
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from loadtests.harness.client.limits import LIMIT, TOO_LONG
from loadtests.harness.client.sse import Event


class FrameReader:
    """A reader that returns the payload and the kind of each frame that a piece of the stream completes.

    The kind is the event's type, or `exception:` or `error:` and its name. A damaged frame becomes an error, after
    which nothing is read.
    """

    unframed = b""  # bytes outside of frames are damaged frames

    def __init__(self) -> None:
        from botocore.eventstream import EventStreamBuffer, ParserError

        self._frames = EventStreamBuffer()
        self._damage = (ParserError, ValueError, KeyError, IndexError, struct.error)  # in a frame or its headers
        self._unread = 0  # bytes of an incomplete frame
        self._length = b""  # its first four bytes, with its length
        self._damaged = False

    @property
    def in_the_middle(self) -> bool:
        return self._unread > 0

    def feed(self, data: bytes) -> list[Event]:
        if self._damaged:
            return []
        self._frames.add_data(data)
        self._unread += len(data)
        events: list[Event] = []
        try:
            for frame in self._frames:
                self._unread -= frame.prelude.total_length
                events.append((frame.payload, _kind(frame.headers).encode()))
            begun_before = self._length if self._unread > len(data) else b""
            self._length = (begun_before + data[max(len(data) - self._unread, 0) :])[:4] if self._unread else b""
            if len(self._length) == 4 and int.from_bytes(self._length, "big") > LIMIT:
                raise ValueError(f"it {TOO_LONG}")
        except self._damage as error:
            self._damaged = True
            events.append((b"", f"error:a frame is damaged ({error})".encode()))
        return events

    def close(self) -> list[Event]:
        return [(b"", b"error:the stream ended within a frame")] if self._unread and not self._damaged else []


def _kind(headers: Mapping[str, Any]) -> str:
    match headers.get(":message-type"):
        case "exception":
            return f"exception:{headers.get(':exception-type', '')}"
        case "error":
            return f"error:{headers.get(':error-code', '')} {headers.get(':error-message', '')}".rstrip()
        case _:
            return str(headers.get(":event-type", ""))
