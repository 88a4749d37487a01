"""A recorded sequence of requests, and its scaling: faster, thinner, denser, or a part of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random

from loadtests.harness.schedule.arrivals import Second

COPIES_WITHIN = 1.0  # seconds around a request in which its copies come


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """`at` counts from the trace's start; `None` where it has no times.

    `blocks` name the blocks of the prompt's tokens: prompts that begin with the same names begin with the same text.
    `messages` are (role, text) of a conversation so far, where the trace has texts; their tokens are not known exactly.
    """

    at: Second | None
    prompt_tokens: int | None
    output_tokens: int
    blocks: tuple[int, ...] = ()
    messages: tuple[tuple[str, str], ...] = ()
    session: str | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """In the order of arrival. `block_tokens` is how many tokens a block has.

    `left_out` counts the rows that are no requests, because their prompt or answer has no tokens.
    """

    requests: tuple[TraceRequest, ...]
    block_tokens: int = 0
    left_out: int = 0

    @property
    def is_timed(self) -> bool:
        return all(request.at is not None for request in self.requests)

    @property
    def times(self) -> list[Second]:
        return [request.at for request in self.requests if request.at is not None]


def in_order(requests: Iterable[TraceRequest]) -> tuple[TraceRequest, ...]:
    """By time where there are times, from 0 on."""
    found = list(requests)
    if any(request.at is None for request in found):
        return tuple(found)
    found.sort(key=lambda request: request.at or 0.0)
    first = (found[0].at or 0.0) if found else 0.0
    return tuple(replace(request, at=(request.at or 0.0) - first) for request in found)


def clipped(trace: Trace, span: tuple[Second, Second] | None, longest: int | None) -> Trace:
    """The requests from one second of the trace to another, of at most so many tokens of prompt and answer."""
    kept: Sequence[TraceRequest] = trace.requests
    if span is not None and trace.is_timed:
        kept = [request for request in kept if span[0] <= (request.at or 0.0) < span[1]]
    if longest is not None:
        kept = [request for request in kept if (request.prompt_tokens or 0) + request.output_tokens <= longest]
    return replace(trace, requests=in_order(kept))


def scaled(trace: Trace, speed: float, share: float, seed: int) -> Trace:
    """Played `speed` times as fast, with `share` requests for each one of the trace.

    Below 1 the share is the probability of each to be kept; above 1 there are copies within a second of it, so that the
    rate grows and its pattern stays.
    """
    rng = Random(f"trace {seed}")
    kept = []
    for request in trace.requests:
        at = None if request.at is None else request.at / speed
        for copy in range(int(share) + (rng.random() < share % 1)):
            moved = at if at is None or not copy else abs(at + rng.uniform(-COPIES_WITHIN, COPIES_WITHIN))
            kept.append(replace(request, at=moved))
    if any(request.at is None for request in kept):
        return replace(trace, requests=tuple(kept))
    return replace(trace, requests=tuple(sorted(kept, key=lambda request: request.at or 0.0)))
