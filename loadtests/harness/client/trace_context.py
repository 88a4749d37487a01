"""The trace and span ids of a request are derived from its own id, so the span can be made later from the record
(`recording/otel_export.py`), outside of the processes that measure."""

from hashlib import blake2b


def trace_ids(run: str, request_id: str) -> tuple[int, int]:
    """Return the ids of a request's trace and span. `run` is unique to the run."""
    digest = blake2b(f"{run}/{request_id}".encode(), digest_size=24).digest()
    return int.from_bytes(digest[:16]), int.from_bytes(digest[16:])


def traceparent(run: str, request_id: str) -> str:
    """Return the header of W3C's Trace Context that makes a server's spans children of the request's."""
    trace, span = trace_ids(run, request_id)
    return f"00-{trace:032x}-{span:016x}-01"
