"""The reader of server-sent events.

The format is that of the HTML standard (https://html.spec.whatwg.org/multipage/server-sent-events.html): lines end in
CR LF, LF or CR, a blank line ends an event, lines that start with a colon are comments, several `data` lines make one
event, a byte order mark may come first. Events are bytes, so a read may cut a character in two.
"""

from __future__ import annotations

import re

from loadtests.harness.client.limits import LIMIT, TOO_LONG

WHOLE = re.compile(rb"data: (.+)\n\n")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
IGNORED = {b"", b"id", b"retry", b"event"}  # names of fields without content; the name of comments is empty
UNFRAMED_BYTES = 4096  # maximum that is kept

Event = tuple[bytes, bytes]
"""The text of the `data` lines, and of the `event` line (empty without one)."""


class EventReader:
    """A reader that returns the events that each piece of the stream completes."""

    __slots__ = ("_after_cr", "_at_start", "_between", "_data", "_kind", "_partial", "unframed")

    def __init__(self) -> None:
        self.unframed = b""
        """The first lines outside of events."""
        self._partial = bytearray()  # a line without its end
        self._data: list[bytes] = []
        self._kind = b""
        self._after_cr = False  # the last byte was a CR: an LF that follows belongs to it
        self._at_start = True
        self._between = False  # all bytes so far belong to complete events

    @property
    def in_the_middle(self) -> bool:
        return bool(self._partial or self._data)

    def feed(self, data: bytes) -> list[Event]:
        """Return the events that end in `data`. An event ends with the first byte of its blank line's end. Raises
        `ValueError` for an event that is too long."""
        if self._between and b"\r" not in data and (whole := WHOLE.fullmatch(data)):
            return [(whole[1], b"")]
        if not data:
            return []
        if self._after_cr and data[0] == 10:
            data = data[1:]
        self._after_cr = False
        if b"\r" in data:
            self._after_cr = data[-1] == 13
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = data.split(b"\n")
        rest = lines.pop()
        events: list[Event] = []
        if lines:
            if self._partial:
                lines[0] = bytes(self._partial) + lines[0]
                self._partial.clear()
            events = self._events(lines)
        self._partial += rest
        self._between = not (self._partial or self._data or self._kind or self._after_cr or self._at_start)
        if not self._between and len(self._partial) + sum(map(len, self._data)) + len(self._data) > LIMIT:
            self._partial.clear()
            self._data.clear()
            raise ValueError(f"an event {TOO_LONG}")
        return events

    def close(self) -> list[Event]:
        """Return the last event, when the stream has ended: some servers leave out the last blank line."""
        lines = [bytes(self._partial), b""]
        self._partial.clear()
        return self._events(lines)

    def _events(self, lines: list[bytes]) -> list[Event]:
        if self._at_start:
            lines[0] = lines[0].removeprefix(BYTE_ORDER_MARK)
            self._at_start = False
        events: list[Event] = []
        for line in lines:
            if not line:
                data = b"\n".join(self._data)
                if data:
                    events.append((data, self._kind))
                self._data.clear()
                self._kind = b""
            elif line.startswith(b"data:"):
                self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
            elif line == b"data":
                self._data.append(b"")
            elif line.startswith(b"event:"):
                self._kind = line[6:].removeprefix(b" ")
            elif line.partition(b":")[0] not in IGNORED:
                self.unframed = (self.unframed + line + b"\n")[:UNFRAMED_BYTES]
        return events
