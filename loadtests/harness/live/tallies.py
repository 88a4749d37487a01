"""What is summed of the requests of a window, besides their metrics: each sum with the number of values in it.

A name in `QUANTITIES` (`live/view.py`) reads them. What is unusual about a request is 1 where it is so, and goes into
the view's counts, which the rules of findings read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

from records.formula import reader
from records.metrics import BY_NAME, FIRST_TOKENS, SEEN_TOKENS
from records.request import RequestRecord
from records.stage import SECOND, Nanoseconds

STREAM_TOKENS = 8  # an answer of fewer tokens may come in one chunk
AT_ONCE = 1e-4  # seconds per token: faster than any model decodes, so the chunks had been held back
PROMPT_TOLERANCE = 1  # tokens by which a prompt may miss its planned length
SHORT = 0.9  # share of the planned tokens below which an answer counts as cut short

Sum = tuple[str, float | None]
seen_tokens, first_tokens = reader(SEEN_TOKENS), reader(FIRST_TOKENS)
tpot, ttft, ttft_user, delivery = (BY_NAME[name].of for name in ("tpot", "ttft", "ttft_user", "delivery"))


def of_request(request: RequestRecord) -> Iterator[Sum]:
    """Of one that was scheduled in the window."""
    yield "retried", request.attempt > 0
    yield "reconnected", request.t_connect is not None


def of_answer(answer: RequestRecord) -> Iterator[Sum]:
    """Of one that ended well."""
    prompt, output, planned = answer.prompt_tokens, answer.output_tokens, answer.planned_output_tokens
    yield "prompt_tokens", prompt
    yield "cached_tokens", answer.cached_tokens
    yield "output_tokens", output
    yield "reasoning_tokens", answer.reasoning_tokens
    yield "merged_first", answer.merged_first
    yield "counted_by_tokenizer", answer.token_source == "tokenizer"
    yield "uncounted", output is None
    yield "empty", output == 0 or (answer.streamed and not answer.chunks)
    if output is not None and planned is not None:
        yield "planned_tokens", planned
        yield "cut_short", output < SHORT * planned
    if prompt is not None and answer.planned_prompt_tokens is not None:
        yield "planned_prompts", True
        yield "missed_prompts", abs(prompt - answer.planned_prompt_tokens) > PROMPT_TOLERANCE
    seen = seen_tokens(answer)
    if seen is not None and answer.chunks:
        yield "tokens_in_chunks", seen
        yield "chunks", answer.chunks
        yield "fewer_tokens_than_chunks", seen < answer.chunks
    if seen is not None and answer.streamed and seen >= STREAM_TOKENS:
        yield "streams", True
        per_token = tpot(answer)
        yield "at_once", answer.chunks == 1 or (per_token is not None and per_token < AT_ONCE)
    if (last := delivery(answer)) is not None:
        yield "ttft_client", (ttft_user(answer) or 0.0) - (ttft(answer) or 0.0)
        yield "ttft_queue", answer.server_queue
        yield "ttft_prefill", answer.server_prefill
        yield "ttft_delivery", last


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
