"""The outcome of a request, from the ends of its connection, its response and its answer."""

from __future__ import annotations

import errno
from http import HTTPStatus
from typing import Literal

from enginebench.records.request import Outcome, RequestRecord
from loadtests.harness.client.model_answer import Answer, error_in, message_of
from loadtests.harness.client.response import Response

Ending = Literal["complete", "closed", "lost", "too_long", "malformed", "exhausted", "cut_off"]
OF_LOAD = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_EARLY}  # 429 and 503 are `rejected`
FAILED_REASONS = {"abort", "error", "content_filter"}
EXHAUSTION = {errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM}
"""Errors of a socket if this machine has no free descriptors, ports, buffers or memory."""


def outcome_of(
    ending: Ending | None,
    detail: str | None,
    response: Response,
    answer: Answer,
    *,
    body: bytes,
    streamed: bool,
    is_stream: bool,
) -> tuple[Outcome, str | None]:
    """Return the outcome, and a sentence about it.

    `streamed` is true if a stream was requested, `is_stream` if one came; otherwise `body` has the answer.
    """
    if response.status is not None and response.status != 200:
        refused = response.status in {429, 503}
        moved = f"redirected to {response.location}" if response.location else None
        return "rejected" if refused else "http_error", message_of(body) or moved
    if response.has_head and response.content_encoding != "identity":
        return "bad_stream", response.malformed
    if ending == "complete" and is_stream != streamed:
        asked = "an event stream" if streamed else "a whole answer"
        got = f"asked for {asked}, got {response.media_type or 'no content type'}"
        return "bad_stream", error_in(body) or got
    if answer.error is not None:
        return "bad_stream", answer.error
    if answer.finish_reason in FAILED_REASONS:
        return "bad_stream", f"the answer ended with the finish reason {answer.finish_reason}"
    if answer.done is not None:
        return "ok", None
    match ending:
        case "complete" if answer.finish_reason or not streamed:
            return "ok", None
        case "complete" if answer.unframed and not answer.chunks:
            return "bad_stream", message_of(answer.unframed)
        case "complete":
            last = answer.last_event.decode()
            return "disconnected", f"the stream ended without {last} and without a finish reason"
        case "closed" | "lost":
            return "disconnected", detail or "the server closed the connection before its answer was complete"
        case "too_long":
            return "timeout", detail
        case "malformed":
            return "bad_stream", detail
        case "exhausted":
            return "unsent", detail
        case _:
            return "cut_off", detail


def outcome_of_opening(error: OSError) -> Outcome:
    """Return the outcome of a request for which no connection could be opened."""
    if error.errno in EXHAUSTION:
        return "unsent"
    return "timeout" if isinstance(error, TimeoutError) else "disconnected"


def load_explains(record: RequestRecord) -> bool:
    """Return whether load can be the reason of the outcome. Under load, a server answers late, refuses requests, or
    breaks connections; it does not change its address, keys, request format or kind of answer."""
    if record.outcome == "http_error":
        return record.status is None or record.status >= 500 or record.status in OF_LOAD
    return record.outcome != "bad_stream" or record.finish_reason in FAILED_REASONS
