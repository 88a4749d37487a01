"""Retries after a failure, with exponential backoff and jitter, as in common SDKs.

A reasonable `Retry-After` of the server counts; otherwise the pause is half a second, doubled with each attempt up to
eight seconds. A random share of up to a quarter is subtracted, so that clients that failed together do not return
together.
"""

from __future__ import annotations

from random import Random

from enginebench.records.request import RETRIED, RequestRecord

FIRST, MAX_PAUSE, JITTER = 0.5, 8.0, 0.25  # seconds, seconds, share
MAX_RETRY_AFTER = 60.0  # seconds; a longer `Retry-After` is ignored
STATUSES = {408, 409, 429}  # and 500 or higher


def pause_before_retry(ended: RequestRecord, retries: int, rng: Random) -> float | None:
    """Return the seconds before the next attempt; `None` if the request is not retried."""
    attempt = ended.attempt
    if ended.outcome not in RETRIED or attempt >= retries:
        return None
    status = ended.status
    if status is not None and status != 200 and status not in STATUSES and status < 500:
        return None
    if ended.retry_after is not None and 0 <= ended.retry_after <= MAX_RETRY_AFTER:
        return ended.retry_after
    return min(MAX_PAUSE, FIRST * 2.0**attempt) * (1 - JITTER * rng.random())
