"""A request as bytes, for clients that use plain sockets."""

from __future__ import annotations


def http_request(path: str, body: bytes | None = None, keep_alive: bool = False) -> bytes:
    """A GET, or a POST of a JSON `body`."""
    method, content = ("GET", b"") if body is None else ("POST", body)
    connection = "keep-alive" if keep_alive else "close"
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: {connection}\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content
