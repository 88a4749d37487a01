"""What one request looked like from this side of the wire."""

from __future__ import annotations

from dataclasses import dataclass

from records.record import Outcome, Stamps, TokenSource

MonotonicNs = int
"""A reading of `time.monotonic_ns()`: absolute, not since the run's start."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One request as seen on the wire: `RequestRecord` without the run around it, and with absolute stamps.

    Without streaming, the moment of the first token cannot be seen: `t_first`, `t_first_out` and `read_first` are
    `None`, `chunks` is 0 and `icl` empty. All content comes at once then, so `t_last` is when the answer was complete.
    """

    outcome: Outcome
    detail: str | None  # for people: the server's message, cut short
    status: int | None
    t_sched: MonotonicNs
    t_send: MonotonicNs | None  # None where no connection could be had
    t_headers: MonotonicNs | None
    t_first: MonotonicNs | None
    t_first_out: MonotonicNs | None
    t_last: MonotonicNs | None
    t_end: MonotonicNs
    read_first: MonotonicNs | None
    stamps: Stamps
    merged_first: bool
    icl: tuple[int, ...]
    chunks: int
    first_chunk_tokens: int | None
    prompt_tokens: int | None
    output_tokens: int | None
    token_source: TokenSource | None  # "usage" or None; the tokenizer counts after the run
    text: str | None  # kept only where the server sent no usage
    reconnected: bool
    streamed: bool
    server_queue: float | None
    server_prefill: float | None
    server_decode: float | None
    size: int = 0  # bytes of the answer, headers and framing included; not recorded, Locust's page shows it
