"""What is summed of the requests of a window, besides their metrics: each sum with the number of values in it.

They become the quantities of a view, and its counts (`records/counts.py`), which the rules of findings read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

from records.counts import OF_ANSWERS, OF_REQUESTS
from records.formula import reader
from records.metrics import FIRST_TOKENS, QUANTITIES, SEEN_TOKENS
from records.request import RequestRecord
from records.stage import SECOND, Nanoseconds

Sum = tuple[str, float | None]
seen_tokens, first_tokens = reader(SEEN_TOKENS), reader(FIRST_TOKENS)
REQUEST_FLAGS, ANSWER_FLAGS = (
    [(name, reader(flag)) for name, flag in flags.items()] for flags in (OF_REQUESTS, OF_ANSWERS)
)
MEANS = [(quantity.name, reader(quantity.mean)) for quantity in QUANTITIES if quantity.mean is not None]


def of_request(request: RequestRecord) -> Iterator[Sum]:
    """Of one that was scheduled in the window."""
    for name, flag in REQUEST_FLAGS:
        if flag(request):
            yield name, 1.0
    if request.outcome != "ok":
        return
    for name, flag in ANSWER_FLAGS:
        if flag(request):
            yield name, 1.0
    for name, value in MEANS:
        yield name, value(request)
    if request.chunks and (seen := seen_tokens(request)) is not None:
        yield "tokens_in_chunks", seen
        yield "chunks", request.chunks


def of_flow(request: RequestRecord, start: Nanoseconds, end: Nanoseconds) -> Iterator[Sum]:
    """What one did within [start, end), whenever it was scheduled."""
    if request.t_send is not None:
        yield "request_seconds", max(0, min(request.t_end, end) - max(request.t_send, start)) / SECOND
        if start <= request.t_send < end:
            yield "stay", (request.t_end - request.t_send) / SECOND
    ended = start <= request.t_end < end
    if request.outcome == "ok" and ended:
        yield "completed", True
        yield "completed_uncounted", request.output_tokens is None
    if request.t_last is None:
        return
    tokens = seen_tokens(request)
    if request.t_first is None:  # it came as a whole
        if tokens is not None and start <= request.t_last < end:
            yield "tokens", tokens
        return
    before, after = _came(request, start), _came(request, end)
    if tokens is None:
        yield "uncounted_chunks", after - before
    else:
        yield "tokens", _tokens(request, tokens, after) - _tokens(request, tokens, before)


def _came(request: RequestRecord, t: Nanoseconds) -> int:
    """Chunks that had come before `t`."""
    assert request.t_first is not None
    elapsed = t - request.t_first
    if elapsed <= 0:
        return 0
    later = len(request.icl)
    if request.t_last is not None and t > request.t_last:
        return 1 + later
    return bisect_left(list(accumulate(request.icl, initial=0)), elapsed)


def _tokens(request: RequestRecord, tokens: float, came: int) -> float:
    """The first chunk brings its own tokens, and the later ones share the rest evenly."""
    if not came:
        return 0.0
    later = len(request.icl)
    first = min(first_tokens(request) or 0.0, tokens) if later else tokens
    return first + (tokens - first) * (came - 1) / later if later else first
