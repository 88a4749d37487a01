"""The ways in which HTTP says where the body of a streamed answer ends."""

from __future__ import annotations

OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


def chunked(body: bytes) -> bytes:
    """Return an HTTP chunk for each line: events are cut at every line end."""
    lines = [line + b"\n" for line in body.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(line), line) for line in lines if line)
    return OK + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


def oddly_chunked(body: bytes) -> bytes:
    """Return three chunks with extensions, upper-case and zero-padded sizes, and trailers at the end."""
    third = len(body) // 3 + 1
    parts = [body[k * third : (k + 1) * third] for k in range(3)]
    chunks = b"".join(b'%04X;name="a;b";x=1\r\n%s\r\n' % (len(part), part) for part in parts if part)
    return OK + b"Trailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0;last\r\nX-Sum: 7\r\n\r\n"


def counted(body: bytes) -> bytes:
    return OK + b"Content-Length: %d\r\n\r\n" % len(body) + body


def until_close(body: bytes) -> bytes:
    return OK + b"Connection: close\r\n\r\n" + body


def http_1_0(body: bytes) -> bytes:
    return b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n\r\n" + body


def http_1_0_chunked(body: bytes) -> bytes:
    """Return chunks under HTTP/1.0, which has none; some servers send them anyway."""
    return chunked(body).replace(b"HTTP/1.1", b"HTTP/1.0", 1)


FRAMINGS = [chunked, oddly_chunked, counted, until_close, http_1_0, http_1_0_chunked]
