"""A recorded sequence of requests, and the stage in which it is played.

An arrival is a request or a whole session. The session's first request is sent when it arrives, each following one
when the request before it has ended and a recorded pause (of a tool or a person) is over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from enginebench.records.load import TRACE, Rate
from enginebench.records.stage import MAX_DURATION, Extent, StagePlan
from enginebench.settings.schema import UserMistake
from loadtests.harness.schedule.arrivals import Second

MIN_BOUND = 60.0  # seconds for the last requests of a trace
LAST = 1e-6  # seconds between a stage's last arrival and its end


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """A request as recorded; `row` is its place in the file.

    `blocks` names the blocks of the prompt, each of `block_tokens`: prompts with the same first names begin with the
    same text. If the trace has texts, `messages` has the (role, text) of a conversation, whose tokens are not known
    exactly. `output_tokens` is `None` if the length of the answer is not known.

    `fields` of the body are sent as in the file, including messages that are more than text; only OpenAI's chat API
    accepts them. `pause` is the seconds from the end of the request before it in its session; `None` for the first.
    `expected` is the exact answer of a question, by which it is graded.
    """

    prompt_tokens: int | None
    output_tokens: int | None
    blocks: tuple[int, ...] = ()
    block_tokens: int = 0
    messages: tuple[tuple[str, str], ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    row: str = field(default="", compare=False)
    session: str | None = None
    pause: Second | None = None
    expected: str | None = None


@dataclass(frozen=True, slots=True)
class TraceArrival:
    """Requests, the first of which is sent `at` seconds after the trace's start; `None` in a trace without times."""

    at: Second | None
    requests: tuple[TraceRequest, ...]


@dataclass(frozen=True, slots=True)
class Trace:
    """Arrivals in order. `left_out` counts rows without a prompt or an answer; `unsent_columns` are columns of the file
    that are not sent."""

    arrivals: tuple[TraceArrival, ...]
    left_out: int = 0
    unsent_columns: tuple[str, ...] = ()

    @property
    def is_timed(self) -> bool:
        return all(arrival.at is not None for arrival in self.arrivals)

    @property
    def has_sessions(self) -> bool:
        """Return whether requests follow others, so that their times are not known beforehand."""
        return any(len(arrival.requests) > 1 for arrival in self.arrivals)

    @property
    def times(self) -> list[Second]:
        return [arrival.at for arrival in self.arrivals if arrival.at is not None]

    @property
    def requests(self) -> Iterator[TraceRequest]:
        return (request for arrival in self.arrivals for request in arrival.requests)


def in_order(arrivals: Iterable[TraceArrival]) -> tuple[TraceArrival, ...]:
    """Sort by time, with the first arrival at 0. Without times, keep the order."""
    listed = list(arrivals)
    times = [arrival.at for arrival in listed if arrival.at is not None]
    if len(times) < len(listed):
        return tuple(listed)
    first = min(times, default=0.0)
    moved = [replace(arrival, at=at - first) for arrival, at in zip(listed, times, strict=True)]
    return tuple(sorted(moved, key=lambda arrival: arrival.at or 0.0))


def trace_stage(path: str, trace: Trace, warm_up: tuple[float, bool]) -> StagePlan:
    """Return the stage that plays a trace to its end; with sessions, until all requests have been sent. Raises
    `UserMistake` for a trace without times."""
    name = Path(path).name
    if not trace.is_timed:
        what = "sessions" if trace.has_sessions else "requests"
        raise UserMistake(f"the trace {name} has no times: set the {what} per second with --rate.")
    seconds = trace.times[-1] + LAST
    if seconds > MAX_DURATION:
        raise UserMistake(
            f"the trace {name} lasts {seconds:,.0f} s, and {MAX_DURATION:,} s are the most: its times are not all from "
            "one clock, or not in the format's unit."
        )
    amount, share = warm_up
    before = amount * seconds if share else amount
    rate = Rate(len(trace.arrivals) / max(seconds, 1.0), TRACE)
    if trace.has_sessions:
        requests = Extent(sum(1 for _ in trace.requests), "requests")
        return StagePlan(rate, Extent(0.0 if share else amount), requests, MIN_BOUND, name)
    if before >= seconds:
        raise UserMistake(f"the trace {name} is over after {seconds:g} s, before its warm-up of {before:g} s.")
    return StagePlan(rate, Extent(before), Extent(seconds - before), max(seconds, MIN_BOUND), name)
