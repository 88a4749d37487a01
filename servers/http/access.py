"""API keys, and reading a request's body within limits of size and time."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Iterable

from starlette.types import Receive, Scope

from servers.http.errors import ApiError, ClientGone
from servers.settings import ServerSettings

Headers = Iterable[tuple[bytes, bytes]]


def check_key(headers: Headers, settings: ServerSettings) -> None:
    """Raises `ApiError` 401. All keys are compared, each in constant time, so that timing reveals nothing."""
    if not settings.api_keys:
        return
    given = _header(headers, b"authorization")
    scheme, _, token = given.partition(b" ")
    known = False
    for key in settings.api_keys:
        known |= hmac.compare_digest(key.encode(), token.strip())
    if scheme.lower() != b"bearer" or not known:
        raise ApiError(
            401,
            "This server requires an API key: send `Authorization: Bearer <key>`."
            if not given
            else "The API key is not valid.",
            code="invalid_api_key",
            headers={"www-authenticate": "Bearer"},
        )


async def read_body(scope: Scope, receive: Receive, settings: ServerSettings) -> bytes:
    """The whole body, after checking key and content type.

    Raises `ApiError` 401, 408, 413 or 415, and `ClientGone`. The rest of a refused body is discarded.
    """
    headers = scope["headers"]
    check_key(headers, settings)
    kind = _header(headers, b"content-type").partition(b";")[0].strip().lower()
    if kind != b"application/json":
        raise ApiError(415, "Send the body as `Content-Type: application/json`.")
    if _header(headers, b"content-encoding") not in (b"", b"identity"):
        raise ApiError(415, "Send the body without a content encoding.")
    announced = _header(headers, b"content-length")
    if announced.isdigit() and int(announced) > settings.max_body_bytes:
        raise _too_large(settings.max_body_bytes)
    parts, size, more = [], 0, True
    try:
        async with asyncio.timeout(settings.body_timeout):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                parts.append(message["body"])
                size += len(parts[-1])
                if size > settings.max_body_bytes:
                    raise _too_large(settings.max_body_bytes)
                more = message["more_body"]
    except TimeoutError:
        raise ApiError(
            408, f"The body did not arrive within {settings.body_timeout:g} s.", headers={"connection": "close"}
        ) from None
    return b"".join(parts)


def _header(headers: Headers, wanted: bytes) -> bytes:
    return next((value for name, value in headers if name == wanted), b"")


def _too_large(limit: int) -> ApiError:
    return ApiError(413, f"The body is larger than this server's limit of {limit} bytes.")
