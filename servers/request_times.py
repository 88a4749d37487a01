"""The time stamps of one request, and the metrics derived from them.

    received ── queue ── admitted ── prefill ── first chunk ── decode ── last chunk

All stamps are seconds of one monotonic clock. `received` is the arrival of the whole body. Chunks are stamped once per
read of the engine's pipe, so that a client that reads slowly changes no duration.
"""

from __future__ import annotations

from collections.abc import Sequence

from engines.contract.base import FinishReason, Usage
from engines.process.stream import ReceivedChunk, by_read
from servers.openai.wire import NO_FIGURES, Ending
from servers.prometheus_metrics import Metrics


class RequestTimes:
    """Call `admit`, `receive` and `complete` as the request proceeds."""

    __slots__ = (
        "_first_tokens",
        "_forced",
        "_metrics",
        "_prompt_tokens",
        "admitted",
        "first",
        "last",
        "produced",
        "received",
    )

    def __init__(self, metrics: Metrics, received: float, prompt_tokens: int, forced: int = 0) -> None:
        """`forced` tokens of the prompt are generated again, for their log-probabilities."""
        self._metrics = metrics
        self._prompt_tokens, self._forced = prompt_tokens + forced, forced
        self._first_tokens = 0  # tokens of the chunks that came first, together
        self.received = received
        self.admitted = received
        self.first: float | None = None
        self.last: float | None = None
        self.produced = 0

    def admit(self, now: float) -> None:
        self.admitted = now
        self._metrics.request_queue_time.observe(now - self.received)
        self._metrics.prompt_tokens += self._prompt_tokens

    def receive(self, chunks: Sequence[ReceivedChunk]) -> None:
        """Take chunks that are ready together, perhaps from several reads of the engine's pipe. One without token and
        text only marks the end of the answer: the last token was before it."""
        if len(chunks) == 1:  # nearly always, with a busy engine
            only = chunks[0]
            if only.tokens or only.text:
                self._receive_together(only.read_at, only.tokens, 1)
            return
        for read_at, tokens in by_read([chunk for chunk in chunks if chunk.tokens or chunk.text]):
            self._receive_together(read_at, sum(tokens), len(tokens))

    def _receive_together(self, now: float, tokens: int, chunks: int) -> None:
        metrics = self._metrics
        self.produced += tokens
        metrics.generation_tokens += max(0, min(tokens, self.produced - self._forced))
        if self.last is not None:
            metrics.inter_chunk_latency.observe(now - self.last)
        else:
            self.first, self._first_tokens = now, tokens
            metrics.time_to_first_token.observe(now - self.received)
            metrics.request_prefill_time.observe(now - self.admitted)
        if chunks > 1:
            metrics.inter_chunk_latency.observe_zeros(chunks - 1)
        self.last = now

    def complete(self, finish_reason: FinishReason, now: float, engine: Usage | None = None) -> Ending:
        """Note the end of the answer. If it has no token, all the time since admission counts as prefill."""
        first = now if self.first is None else self.first
        last = now if self.last is None else self.last
        decode = last - first
        self._metrics.e2e_request_latency.observe(last - self.received)
        self._metrics.request_decode_time.observe(decode)
        if self.produced > self._first_tokens:
            self._metrics.time_per_output_token.observe(decode / (self.produced - self._first_tokens))
        return Ending(
            finish_reason=finish_reason,
            prompt_tokens=self._prompt_tokens,
            completion_tokens=self.produced - self._forced,
            queue=self.admitted - self.received,
            prefill=first - self.admitted,
            decode=decode,
            engine=engine or NO_FIGURES,
        )
