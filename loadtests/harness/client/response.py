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
UNENCODED = {b"", b"none"}  # names for no encoding in some servers' event streams


class Response:
    """Read one response, skipping interim ones (1xx). Its attributes are valid once `has_head` is true."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.media_type = ""
        self.content_encoding = "identity"
        self.framing: Framing = "until_close"
        self.retry_after: float | None = None  # seconds
        self.location = ""
        self.has_head = False
        self.ended = False
        self.malformed: str | None = None  # a sentence, after bytes that are not HTTP/1.1
        self.keep_alive = False
        self._pieces: list[bytes] = []
        self._framing_bytes = 0  # since the last piece of the body
        self._in_chunk = False
        self._between_chunks = False
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> list[bytes]:
        """Return the pieces of body in `data`, up to where it is no longer HTTP/1.1."""
        if self._parser is None:
            self.keep_alive = False  # bytes after the end belong to no request
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
                self.malformed = f"more than {FRAMING_LIMIT // 2**10} kB came without content, such as headers"
        elif self._framing_bytes:
            self._framing_bytes = 0
        if self.ended or self.malformed is not None:
            self._parser = None  # it refers to this object: break the cycle without the garbage collector
            if self.content_encoding != "identity":
                self._pieces.clear()
        self._between_chunks = not self._in_chunk and data.endswith(b"\r\n")
        pieces, self._pieces = self._pieces, []
        return pieces

    def feed_all(self, reads: Sequence[bytes]) -> list[bytes]:
        """Return the part of the body in each of many reads. In most streams, each read but the last is one chunk. Such
        reads bypass the parser, which stays between two chunks."""
        bodies: list[bytes] = []
        if self.framing == "chunked" and self._between_chunks and self._parser is not None:
            heads: dict[int, bytes] = {}  # the beginning of a chunk, by the length of the read
            for read in reads:
                head = heads.get(len(read))
                if head is None or not read.startswith(head):
                    match = CHUNK.fullmatch(read)
                    if match is None or not int(match[1], 16) == len(match[2]) > 0:
                        break
                    head = heads[len(read)] = match[1] + b"\r\n"
                elif not read.endswith(b"\r\n"):
                    break
                bodies.append(read[len(head) : -2])
        return bodies + [b"".join(self.feed(read)) for read in reads[len(bodies) :]]

    def end_of_stream(self) -> bool:
        """Take the end of the connection, and return whether the body may end in this way."""
        self._parser = None
        self.keep_alive = False
        return self.ended or (self.has_head and self.framing == "until_close")

    # Callbacks of the parser.

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
            self.malformed = f"the server compressed its answer ({self.content_encoding}), against the request"

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
