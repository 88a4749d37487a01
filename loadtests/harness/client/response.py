"""The HTTP frame around one answer: status line, headers, and where the body ends."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal

import httptools

from loadtests.harness.client.limits import FRAMING_LIMIT

Framing = Literal["chunked", "counted", "until_close"]
CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})\r\n(.*)\r\n", re.DOTALL)
UNENCODED = {b"", b"none"}  # as some servers of event streams say it


class Response:
    """Reads one response, interim ones (1xx) skipped. Read the attributes once `has_head` is true."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.media_type = ""
        self.content_encoding = "identity"
        self.framing: Framing = "until_close"
        self.retry_after: float | None = None  # seconds
        self.location = ""
        self.has_head = False
        self.ended = False
        self.malformed: str | None = None  # a sentence, once bytes have come that are no HTTP/1.1
        self.keep_alive = False
        self._pieces: list[bytes] = []
        self._framing_bytes = 0  # since the last piece of the body
        self._in_chunk = False
        self._between_chunks = False
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> list[bytes]:
        """The pieces of body in `data`, up to where it stops being HTTP/1.1."""
        if self._parser is None:
            self.keep_alive = False  # bytes after the end belong to no request: do not use the connection again
            return []
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.malformed = "the server wants to switch protocols"
        except httptools.HttpParserError as error:
            self.keep_alive = False
            if not self.ended:
                self.malformed = f"the answer is not HTTP/1.1 ({error})"
        if not self._pieces:
            self._framing_bytes += len(data)
            if self._framing_bytes > FRAMING_LIMIT and not self.ended and self.malformed is None:
                self.malformed = f"more than {FRAMING_LIMIT // 2**10} kB came without content: headers, or the like"
        elif self._framing_bytes:
            self._framing_bytes = 0
        if self.ended or self.malformed is not None:
            self._parser = None  # it holds this object's methods: let go of each other without the garbage collector
            if self.content_encoding != "identity":
                self._pieces.clear()
        self._between_chunks = not self._in_chunk and data.endswith(b"\r\n")
        pieces, self._pieces = self._pieces, []
        return pieces

    def feed_all(self, reads: Sequence[bytes]) -> list[bytes]:
        """The part of the body in each of many reads. In nearly all streams each is one chunk, but for the last one.
        Such reads need no parser: it stays where it is, between two chunks."""
        bodies: list[bytes] = []
        if self.framing == "chunked" and self._between_chunks and self._parser is not None:
            heads: dict[int, bytes] = {}  # by the length of a read: what one chunk of that length begins with
            for read in reads:
                head = heads.get(len(read))
                if head is None or not read.startswith(head):
                    found = CHUNK.fullmatch(read)
                    if found is None or not int(found[1], 16) == len(found[2]) > 0:
                        break
                    head = heads[len(read)] = found[1] + b"\r\n"
                elif not read.endswith(b"\r\n"):
                    break
                bodies.append(read[len(head) : -2])
        return bodies + [b"".join(self.feed(read)) for read in reads[len(bodies) :]]

    def end_of_stream(self) -> bool:
        """The server has closed the connection. Whether that is how this body was meant to end."""
        self._parser = None
        self.keep_alive = False
        return self.ended or (self.has_head and self.framing == "until_close")

    # What the parser calls.

    def on_message_begin(self) -> None:
        if self.ended:
            self.keep_alive = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.ended or self.has_head:
            return
        name = name.lower()
        if name == b"content-type":
            self.media_type = value.partition(b";")[0].strip().lower().decode("latin-1")
        elif name == b"content-encoding" and (encoding := value.strip().lower()) not in UNENCODED:
            self.content_encoding = encoding.decode("latin-1")
        elif name == b"retry-after":
            with suppress(ValueError):  # a date: clocks may differ
                self.retry_after = float(value)
        elif name == b"location":
            self.location = value.decode("latin-1")
        elif name == b"transfer-encoding":
            self.framing = "chunked"
            if (encoding := value.strip().lower()) != b"chunked":
                self.content_encoding = encoding.decode("latin-1")
        elif name == b"content-length" and self.framing != "chunked":
            self.framing = "counted"

    def on_headers_complete(self) -> None:
        if self.ended or self._parser is None:
            return
        status = self._parser.get_status_code()
        if status < 200:
            self.media_type, self.content_encoding, self.retry_after = "", "identity", None
            self.framing = "until_close"
            return
        self.status = status
        self.has_head = True
        self.keep_alive = self._parser.should_keep_alive()
        if self.content_encoding != "identity":
            self.malformed = f"the server compressed its answer ({self.content_encoding}) though asked not to"

    def on_body(self, piece: bytes) -> None:
        if not self.ended:
            self._pieces.append(piece)

    def on_chunk_header(self) -> None:
        self._in_chunk = True

    def on_chunk_complete(self) -> None:
        self._in_chunk = False

    def on_message_complete(self) -> None:
        if self.has_head:
            self.ended = True
