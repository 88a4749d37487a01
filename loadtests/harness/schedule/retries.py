"""When a client retries after a failure: with exponential backoff and jitter, as common SDKs do.

A server's `Retry-After` counts, if it is reasonable; otherwise half a second, doubled with each attempt up to eight
seconds, less up to a quarter at random, so that clients that failed together do not come back together.
"""

from __future__ import annotations

from random import Random

from enginebench.records.request import RequestRecord

FIRST, MOST, JITTER = 0.5, 8.0, 0.25  # seconds, seconds, share
MOST_RETRY_AFTER = 60.0  # seconds; what asks for more is not waited for
STATUSES = {408, 409, 429}  # and all from 500 on
RETRIED = {"rejected", "http_error", "disconnected"}


def pause_before_retry(ended: RequestRecord, retries: int, rng: Random) -> float | None:
    """Seconds; `None` where the request is not retried."""
    attempt = ended.attempt
    if ended.outcome not in RETRIED or attempt >= retries:
        return None
    status = ended.status
    if status is not None and status != 200 and status not in STATUSES and status < 500:
        return None
    if ended.retry_after is not None and 0 <= ended.retry_after <= MOST_RETRY_AFTER:
        return ended.retry_after
    return min(MOST, FIRST * 2.0**attempt) * (1 - JITTER * rng.random())
