"""The answer to one request, as the server reads it from an engine's process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Annotated

import msgspec

from engines.contract.base import FinishReason, TokenLogprob, Usage
from engines.contract.errors import EngineError


class ReceivedChunk(msgspec.Struct, gc=False, tag_field="type", tag="chunk"):
    """A `Chunk` on the server's side, decoded from its line."""

    id: int  # of the request
    text: str
    tokens: Annotated[int, msgspec.Meta(ge=0)]
    logprobs: tuple[TokenLogprob, ...] = ()
    read_at: float = 0.0  # when its line was read from the pipe, seconds of the monotonic clock


def by_read(chunks: Sequence[ReceivedChunk]) -> Iterator[tuple[float, list[int]]]:
    """Yield when the pipe was read, and the tokens of each chunk that came with that read."""
    for read_at, together in groupby(chunks, attrgetter("read_at")):
        yield read_at, [chunk.tokens for chunk in together]


class Stream:
    """The answer to one request: iterate over lists of the chunks that are ready, at least one at a time.

    It ends after the child's last line, and raises an `EngineError` if the request failed. A consumer that leaves early
    must `cancel()`, or the engine continues. `on_end` is called once, when the engine is done with the request, whether
    or not the stream is still being iterated.
    """

    __slots__ = ("_ask_to_stop", "_ended", "_error", "_pending", "_waiter", "finish_reason", "on_end", "usage")

    def __init__(self, ask_to_stop: Callable[[], None]) -> None:
        self._ask_to_stop = ask_to_stop
        self._pending: list[ReceivedChunk] = []
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False
        self._error: EngineError | None = None
        self.finish_reason: FinishReason | None = None
        self.usage: Usage | None = None  # the engine's own figures, set at the end
        self.on_end: Callable[[], None] | None = None

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> list[ReceivedChunk]:
        while not self._pending:
            if self._error is not None:
                raise self._error
            if self._ended:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        ready, self._pending = self._pending, []
        return ready

    def cancel(self) -> None:
        """Ask the engine to stop. The stream ends, with `finish_reason` "cancelled", when it has stopped."""
        if not self._ended:
            self._ask_to_stop()

    async def stopped(self) -> None:
        """Wait until the engine is done with this request, discarding further chunks."""
        with contextlib.suppress(EngineError):
            async for _ in self:
                pass

    def feed(self, chunk: ReceivedChunk) -> None:
        self._pending.append(chunk)
        self._wake()

    def end(
        self, finish_reason: FinishReason | None, error: EngineError | None = None, usage: Usage | None = None
    ) -> None:
        self._ended, self.finish_reason, self._error, self.usage = True, finish_reason, error, usage
        if self.on_end is not None:
            self.on_end()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
