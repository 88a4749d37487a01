"""What is summed of the requests of a window, besides their metrics: each sum with the number of values in it.

They become the quantities of a view, and its counts (`records/counts.py`), which the rules of findings read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from itertools import accumulate

from enginebench.records.counts import OF_ANSWERS, OF_REQUESTS
from enginebench.records.formula import Field, Formula, Known, Positive, When
from enginebench.records.metrics import FIRST_TOKENS, QUANTITIES, SEEN_TOKENS
from enginebench.records.readers import readers
from enginebench.records.request import RequestRecord
from enginebench.records.stage import SECOND, Nanoseconds

Sum = tuple[str, float | None]
tokens_of = readers((SEEN_TOKENS, FIRST_TOKENS))
MEANS: Mapping[str, Formula] = {
    **{quantity.name: quantity.mean for quantity in QUANTITIES if quantity.mean is not None},
    "tokens_in_chunks": When(Known(Positive(Field("chunks"))), SEEN_TOKENS),
    "chunks": When(Known(SEEN_TOKENS), Positive(Field("chunks"))),
}
flags_of_request = readers(OF_REQUESTS.values())
flags_of_answer, means_of_answer = readers(OF_ANSWERS.values()), readers(MEANS.values())


def of_request(request: RequestRecord) -> Iterator[Sum]:
    """Of one that was scheduled in the window. Of flags, only those that are raised."""
    if any(flags := flags_of_request(request)):
        yield from zip(OF_REQUESTS, (flag or None for flag in flags), strict=True)
    if request.outcome == "ok":
        if any(flags := flags_of_answer(request)):
            yield from zip(OF_ANSWERS, (flag or None for flag in flags), strict=True)
        yield from zip(MEANS, means_of_answer(request), strict=True)


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
    tokens, of_first = tokens_of(request)
    if request.t_first is None:  # it came as a whole
        if tokens is not None and start <= request.t_last < end:
            yield "tokens", tokens
        return
    before, after = _came(request, start), _came(request, end)
    if tokens is None:
        yield "uncounted_chunks", after - before
    else:
        later = len(request.icl)
        first = min(of_first or 0.0, tokens) if later else tokens
        yield "tokens", _tokens(first, tokens, later, after) - _tokens(first, tokens, later, before)


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


def _tokens(first: float, tokens: float, later: int, came: int) -> float:
    """The first chunk brings its own tokens, and the `later` ones share the rest evenly."""
    if not came:
        return 0.0
    return first + (tokens - first) * (came - 1) / later if later else first
