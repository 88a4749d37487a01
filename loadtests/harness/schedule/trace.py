"""A recorded sequence of requests, and its scaling: faster, thinner, denser, or a part of it.

What arrives is a request, or a whole session of an agent: of its requests the first is sent when the session arrives,
and each other one when those that it depends on have ended and a recorded pause (a tool, a person) is over. So
sub-agents run in parallel as they did, and a slow server delays what follows from its answers, as it would have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from loadtests.harness.schedule.arrivals import Second

COPIES_WITHIN = 1.0  # seconds around an arrival in which its copies come


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """`blocks` name the blocks of the prompt, each of `block_tokens`: prompts that begin with the same names, of the
    same `scope`, begin with the same text. `messages` are (role, text) of a conversation so far, where the trace has
    texts; their tokens are not known exactly. `output_tokens` are `None` where nothing says how long the answer was.

    `fields` of the body are sent as they stand in the file, among them messages that are more than text; only the API
    `endpoint` takes them. `row` is the place in the file that an error names.

    `after` are the earlier requests of its arrival, by index, of which the last to end precedes it by `pause` seconds;
    where there are none, the pause counts from the arrival.
    """

    prompt_tokens: int | None
    output_tokens: int | None
    blocks: tuple[int, ...] = ()
    block_tokens: int = 0
    scope: str = ""
    messages: tuple[tuple[str, str], ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    endpoint: str = "chat"
    row: str = field(default="", compare=False)
    session: str | None = None
    after: tuple[int, ...] = ()
    pause: Second = 0.0


@dataclass(frozen=True, slots=True)
class TraceArrival:
    """`at` counts from the trace's start; `None` where it has no times. The first request is sent then."""

    at: Second | None
    requests: tuple[TraceRequest, ...]


@dataclass(frozen=True, slots=True)
class Trace:
    """In the order of arrival. `left_out` counts the rows without a prompt or an answer, which are no requests;
    `unsent_columns` are those of the file that are not sent."""

    arrivals: tuple[TraceArrival, ...]
    left_out: int = 0
    unsent_columns: tuple[str, ...] = ()

    @property
    def is_timed(self) -> bool:
        return all(arrival.at is not None for arrival in self.arrivals)

    @property
    def has_sessions(self) -> bool:
        """Whether requests depend on others, so that their times are known only when they are sent."""
        return any(len(arrival.requests) > 1 for arrival in self.arrivals)

    @property
    def times(self) -> list[Second]:
        return [arrival.at for arrival in self.arrivals if arrival.at is not None]

    @property
    def requests(self) -> Iterator[TraceRequest]:
        return (request for arrival in self.arrivals for request in arrival.requests)


class PlayedSession:
    """One arrival as it is played: which of its requests are due when others have ended."""

    def __init__(self, requests: Sequence[TraceRequest]) -> None:
        self._requests = requests
        self._waiting_for = [len(request.after) for request in requests]
        self._left = len(requests)

    @property
    def over(self) -> bool:
        return self._left == 0

    def begins(self) -> list[tuple[int, Second]]:
        """What is sent beside the first request: its index, and seconds after the arrival."""
        heads = enumerate(self._requests[1:], 1)
        return [(index, request.pause) for index, request in heads if not request.after]

    def ended(self, index: int) -> list[tuple[int, Second]]:
        """What may be sent now that a request has ended, in whatever way: its index, and seconds after that end."""
        self._left -= 1
        due = []
        for later in range(index + 1, len(self._requests)):
            if index in self._requests[later].after:
                self._waiting_for[later] -= 1
                if not self._waiting_for[later]:
                    due.append((later, self._requests[later].pause))
        return due


def in_order(arrivals: Iterable[TraceArrival]) -> tuple[TraceArrival, ...]:
    """By time where there are times, from 0 on."""
    found = list(arrivals)
    if any(arrival.at is None for arrival in found):
        return tuple(found)
    found.sort(key=lambda arrival: arrival.at or 0.0)
    first = (found[0].at or 0.0) if found else 0.0
    return tuple(replace(arrival, at=(arrival.at or 0.0) - first) for arrival in found)


def clipped(trace: Trace, span: tuple[Second, Second] | None, longest: int | None) -> Trace:
    """What arrives from one second of the trace to another, of requests of at most so many tokens of prompt and answer.

    What depends on a request that is too long is left out with it.
    """
    kept: Sequence[TraceArrival] = trace.arrivals
    if span is not None and trace.is_timed:
        kept = [arrival for arrival in kept if span[0] <= (arrival.at or 0.0) < span[1]]
    if longest is not None:
        short = (replace(arrival, requests=_within(arrival.requests, longest)) for arrival in kept)
        kept = [arrival for arrival in short if arrival.requests]
    return replace(trace, arrivals=in_order(kept))


def _within(requests: Sequence[TraceRequest], longest: int) -> tuple[TraceRequest, ...]:
    """Without the first request, which the others' pauses count from, nothing is left."""
    new_index: dict[int, int] = {}
    kept: list[TraceRequest] = []
    for index, request in enumerate(requests):
        fits = (request.prompt_tokens or 0) + (request.output_tokens or 0) <= longest
        if fits and all(earlier in new_index for earlier in request.after) and (kept or index == 0):
            new_index[index] = len(kept)
            kept.append(replace(request, after=tuple(new_index[earlier] for earlier in request.after)))
    return tuple(kept)


def scaled(trace: Trace, speed: float, share: float, seed: int) -> Trace:
    """Played `speed` times as fast, with `share` arrivals for each one of the trace.

    Below 1 the share is the probability of each to be kept; above 1 there are copies within a second of it, so that the
    rate grows and its pattern stays.
    """
    rng = Random(f"trace {seed}")
    kept = []
    for arrival in trace.arrivals:
        at = None if arrival.at is None else arrival.at / speed
        faster = tuple(replace(each, pause=each.pause / speed) if each.pause else each for each in arrival.requests)
        for copy in range(int(share) + (rng.random() < share % 1)):
            moved = at if at is None or not copy else abs(at + rng.uniform(-COPIES_WITHIN, COPIES_WITHIN))
            kept.append(TraceArrival(moved, faster))
    if any(arrival.at is None for arrival in kept):
        return replace(trace, arrivals=tuple(kept))
    return replace(trace, arrivals=tuple(sorted(kept, key=lambda arrival: arrival.at or 0.0)))
