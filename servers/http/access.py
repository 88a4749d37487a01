"""Read a request's headers, and its body within the size limit."""

from __future__ import annotations

import hmac
from collections.abc import Iterable

from starlette.types import Receive

from servers.http.api_errors import ApiError, ClientGone
from servers.settings import ServerSettings

Headers = Iterable[tuple[bytes, bytes]]


def check_key(headers: Headers, settings: ServerSettings) -> None:
    """Check the key. Raises `ApiError` 401."""
    if settings.api_key is None:
        return
    header = _header(headers, b"authorization")
    scheme, _, key = header.partition(b" ")
    if scheme.lower() != b"bearer" or not hmac.compare_digest(settings.api_key.encode(), key.strip()):
        message = "The API key is not valid." if header else "Send this server's key: `Authorization: Bearer <key>`."
        raise ApiError(401, message, code="invalid_api_key", headers={"www-authenticate": "Bearer"})


def check_headers(headers: Headers, settings: ServerSettings) -> None:
    """Check the headers of a request before its JSON body is read. Raises `ApiError` 401, 413 or 415."""
    check_key(headers, settings)
    if _header(headers, b"content-type").partition(b";")[0].strip().lower() != b"application/json":
        raise ApiError(415, "Send the body as `Content-Type: application/json`.")
    if _header(headers, b"content-encoding") not in (b"", b"identity"):
        raise ApiError(415, "Send the body without a content encoding.")
    announced = _header(headers, b"content-length")
    if announced.isdigit() and int(announced) > settings.max_body_bytes:
        raise _too_large(settings.max_body_bytes)


async def read_body(receive: Receive, most: int) -> bytes:
    """Return the whole body. Raises `ApiError` 413 above `most` bytes, and `ClientGone`. uvicorn discards the
    rest."""
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        parts.append(message["body"])
        size += len(parts[-1])
        if size > most:
            raise _too_large(most)
        more = message["more_body"]
    return b"".join(parts)


def _header(headers: Headers, key: bytes) -> bytes:
    return next((value for name, value in headers if name == key), b"")


def _too_large(limit: int) -> ApiError:
    return ApiError(413, f"The body is larger than this server's limit of {limit} bytes.")
