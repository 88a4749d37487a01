"""A request: planned, sent, answered, and one line of `requests*.jsonl`.

Time stamps are whole monotonic nanoseconds since the run's start on the worker's own clock. Missing values are `None`,
never 0. To add a field, change only this file: the lines on disk, the JSON Schema, `requests.parquet` and the table of
metrics derive from these structs.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from enginebench.records.load import Count
from enginebench.records.stage import Nanoseconds

Outcome = Literal[
    "ok", "http_error", "rejected", "timeout", "disconnected", "bad_stream", "dropped", "unsent", "cut_off"
]
"""How a request ended. `rejected` is a 429 or 503; `disconnected` a stream that ended early; `bad_stream` a malformed
one, an error inside it or a finish reason that is a failure; `dropped` an open-loop arrival that exceeded the limit on
requests in flight; `unsent` could not be sent because the load generator ran out of descriptors, ports, buffers or
memory: not the server's failure, and the run is invalid; `cut_off` was stopped by the end of the run: censored, neither
a success nor a failure."""
CUT_OFF: Outcome = "cut_off"
UNSENT: Outcome = "unsent"
DROPPED: Outcome = "dropped"
CENSORED = (CUT_OFF,)
"""Outcomes of requests that we ended: their later events are unknown, so latencies count as bounds."""
UNJUDGED = (*CENSORED, UNSENT)
"""Censored requests and failures of the load generator: the server is not judged by them."""
NO_FAILURE = ("ok", *UNJUDGED)
RETRIED: tuple[Outcome, ...] = ("rejected", "http_error", "disconnected")
"""Failures after which `--retries` sends the request again, if its status allows that (schedule/retries.py)."""

TokenSource = Literal["usage", "tokenizer"]
Stamps = Literal["kernel", "user"]


class JsonLine(msgspec.Struct, kw_only=True, gc=False):
    """An object that is written as one line. It cannot be in a reference cycle, so garbage collection skips it."""

    def to_line(self) -> str:
        """Return one JSON object and a newline."""
        return _encoder.encode(self).decode() + "\n"


_encoder = msgspec.json.Encoder()


class RequestRecord(JsonLine, kw_only=True, gc=False, tag_field="event", tag="ended"):
    """A request from its plan to its end. It is built when the request is planned (`planned`), completed by the client
    as the request ends, then written and counted, and not changed afterwards.

    Without streaming, the time of the first token is unknown: `t_first`, `t_first_out` and `read_first` are `None`,
    `chunks` is 0 and `icl` empty. All content comes at once, so `t_last` is when the answer was complete.
    """

    outcome: Outcome
    t_sched: Nanoseconds  # the schedule planned this request (closed loop: the user became free)
    t_end: Nanoseconds  # stream closed
    detail: str | None = None  # for people: the server's message, cut short
    status: Count | None = None
    t_connect: Nanoseconds | None = None  # opening a connection began; None if one was open
    resent: bool = False  # the server closed a reused connection without an answer; t_connect is the first attempt
    round_trip: float | None = None  # seconds, the connection's shortest as measured by the kernel
    t_send: Nanoseconds | None = None  # just before the first byte is written; None without a connection
    t_headers: Nanoseconds | None = None  # response headers complete
    t_first: Nanoseconds | None = None  # first chunk with generated content: text, reasoning, tool call, refusal
    t_first_out: Nanoseconds | None = None  # first chunk with non-reasoning content
    t_last: Nanoseconds | None = None  # last content chunk
    read_first: Nanoseconds | None = None  # user-space clock of the read that completed the first chunk
    stamps: Stamps = "user"  # which clock the receive stamps come from
    merged_first: bool = False  # later chunks were read with the first, so its kernel stamp is an upper bound
    icl: tuple[Nanoseconds, ...] = ()  # gaps between successive content chunks
    chunks: Count = 0  # content chunks
    first_chunk_tokens: Count | None = None
    prompt_tokens: Count | None = None
    output_tokens: Count | None = None
    token_source: TokenSource | None = None
    reported_tokens: Count | None = None  # output tokens in the server's usage, if fewer than were received
    cached_tokens: Count | None = None  # tokens of the prompt, as the server reports
    reasoning_tokens: Count | None = None  # tokens of the output, shown or hidden
    unseen_tokens: Count = 0  # output tokens in no chunk: hidden reasoning
    unknown_text: str | None = None  # fields of the answer that held text and belong to no known API
    finish_reason: str | None = None
    text: str | None = None  # the answer, if it is kept, or needed to count tokens because usage is missing
    token_ends: tuple[int, ...] = ()  # characters of the text up to the end of each token, if the server reports them …
    logprobs: tuple[float, ...] = ()  # … the natural logarithms of the tokens' probabilities
    answer_digest: str | None = None  # hash of the generated text: equal answers have equal digests
    correct: bool | None = None  # for a question with an exact answer
    streamed: bool = True
    retry_after: float | None = None  # seconds that a refusing server asks its client to wait
    server_queue: float | None = None  # seconds on the server's clock, if it sends them
    server_prefill: float | None = None
    server_decode: float | None = None
    request_id: str
    worker: str
    scenario: str
    stage: Count
    user: Count | None = None
    session: str | None = None
    turn: Count | None = None
    request_class: str | None = None
    planned_prompt_tokens: Count | None = None
    planned_output_tokens: Count | None = None
    prompt_id: str | None = None  # equal prompts have equal ids, in all runs
    attempt: Count = 0  # earlier failed attempts of the same request

    @classmethod
    def planned(cls, **asked: Any) -> RequestRecord:
        """Return the record of a request that has not been sent, so that sender, time and stage are unknown."""
        return cls(request_id="", worker="", scenario="", stage=0, outcome=CUT_OFF, t_sched=0, t_end=0, **asked)


class SentRecord(JsonLine, kw_only=True, gc=False, tag_field="event", tag="sent"):
    """The short line written just before a request is sent, so that the requests of a killed process are known.

    `t_send` is the instant of writing. A reader drops it if a `RequestRecord` of the same `request_id` follows.
    """

    request_id: str
    worker: str
    stage: Count
    t_sched: Nanoseconds
    t_send: Nanoseconds


Line = RequestRecord | SentRecord
"""In JSON, `event` is `ended` or `sent`."""
