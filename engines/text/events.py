"""Server-sent events of JSON, for engines that are clients of another server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from engines.contract.base import EngineError

if TYPE_CHECKING:
    import httpx


async def events(answer: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """The JSON objects of a streamed answer, up to `[DONE]` or its end. Raises `EngineError` for an error event."""
    rest = b""
    async for data in answer.aiter_bytes():
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            content = line.strip().removeprefix(b"data:").strip() if line.startswith(b"data:") else b""
            if content == b"[DONE]":
                return
            if content:
                try:
                    event = json.loads(content)
                except ValueError as error:
                    raise EngineError(f"the server sent an event that is no JSON: {content[:100]!r}.") from error
                if "error" in event:
                    raise EngineError(f"the server failed: {message_of(event)}")
                yield event


def message_of(document: Any) -> str:
    """OpenAI's form is {"error": {"message": …}}; others write the text itself."""
    error = document.get("error", document) if isinstance(document, dict) else document
    return str(error.get("message", error) if isinstance(error, dict) else error)
