"""Amazon's binary event stream: frames with headers, a payload and two checksums.

    total length | headers' length | CRC of these eight bytes | headers | payload | CRC of all before it

Numbers are 32-bit big-endian, checksums CRC-32 (https://smithy.io/2.0/aws/amazon-eventstream.html).
"""

from __future__ import annotations

import struct
from binascii import crc32
from collections.abc import Iterator, Mapping

from loadtests.harness.client.limits import LIMIT
from loadtests.harness.client.sse import Event

PRELUDE = struct.Struct(">III")
CHECKSUM = struct.Struct(">I")
LEAST = PRELUDE.size + CHECKSUM.size
VALUE_BYTES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Size of a header's value by its type: booleans, integers, time, UUID."""
SIZED_TYPES = {6, 7}  # bytes and text, which have their length before them
TEXT = 7


class FrameReader:
    """Feed it what each read brought; it gives back the payload and the kind of each frame completed.

    The kind is the event's type, or `exception:` or `error:` and its name. A damaged frame becomes an error, after
    which nothing more is read.
    """

    unframed = b""  # what is no frame is damaged

    def __init__(self) -> None:
        self._partial = bytearray()
        self._damaged = False

    @property
    def in_the_middle(self) -> bool:
        return bool(self._partial)

    def feed(self, data: bytes) -> list[Event]:
        if self._damaged:
            return []
        self._partial += data
        return list(self._events())

    def close(self) -> list[Event]:
        return [(b"", b"error:the stream ended within a frame")] if self._partial and not self._damaged else []

    def _events(self) -> Iterator[Event]:
        try:
            yield from self._frames()
        except ValueError as error:
            self._damaged = True
            yield b"", f"error:{error}".encode()

    def _frames(self) -> Iterator[Event]:
        while len(self._partial) >= PRELUDE.size:
            length, headers_length, checksum = PRELUDE.unpack_from(self._partial)
            if crc32(self._partial[:8]) != checksum:
                raise ValueError("a frame's prelude does not match its checksum")
            if not LEAST + headers_length <= length <= LIMIT:
                raise ValueError(f"a frame of {length} bytes with {headers_length} bytes of headers cannot be")
            if len(self._partial) < length:
                return
            frame = bytes(self._partial[:length])
            del self._partial[:length]
            if crc32(frame[: -CHECKSUM.size]) != CHECKSUM.unpack_from(frame, length - CHECKSUM.size)[0]:
                raise ValueError("a frame does not match its checksum")
            end = PRELUDE.size + headers_length
            headers = dict(_headers(frame[PRELUDE.size : end]))
            yield frame[end : -CHECKSUM.size], _kind(headers).encode()


def _headers(data: bytes) -> Iterator[tuple[str, str]]:
    """Those that are text."""
    at = 0
    try:
        while at < len(data):
            name_end = at + 1 + data[at]
            name, kind = data[at + 1 : name_end].decode(), data[name_end]
            at = name_end + 1
            if kind in SIZED_TYPES:
                (size,) = struct.unpack_from(">H", data, at)
                at += 2
            else:
                size = VALUE_BYTES[kind]
            if at + size > len(data):
                raise IndexError
            if kind == TEXT:
                yield name, data[at : at + size].decode()
            at += size
    except (IndexError, KeyError, struct.error, UnicodeDecodeError):
        raise ValueError("a frame's headers are malformed") from None


def _kind(headers: Mapping[str, str]) -> str:
    match headers.get(":message-type"):
        case "exception":
            return f"exception:{headers.get(':exception-type', '')}"
        case "error":
            return f"error:{headers.get(':error-code', '')} {headers.get(':error-message', '')}".rstrip()
        case _:
            return headers.get(":event-type", "")
