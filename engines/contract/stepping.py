"""Engines that compute in steps: one thread advances a batch, which requests join and leave between two steps.

All computations of the library run on that thread, loading included. Chunks of one step are handed over to the event
loop in one call. Standard library only, like the rest of the contract.
"""

from __future__ import annotations

import asyncio
import threading
import traceback
from abc import abstractmethod
from collections.abc import AsyncIterator, Collection, Iterator
from concurrent.futures import Future
from typing import Any, ClassVar, Protocol

from engines.contract.base import Chunk, Engine, EngineInfo, GenerateRequest
from engines.contract.errors import EngineUnavailable, FatalError, first_line


class Sequence(Protocol):
    """A request in a batch. `cancelled` is set from the event loop; the next step releases the sequence."""

    cancelled: bool


# The result of a part of a step: a chunk, an error that ends only this sequence, or `None` for a released one.
Generated = list[tuple[Any, Chunk | Exception | None]]


class Batch(Protocol):
    """Used only by the stepping thread."""

    @property
    def sequences(self) -> Collection[Any]:
        """Return the running and the waiting sequences."""
        ...

    def add(self, sequence: Any) -> None: ...

    def step(self) -> Iterator[Generated]:
        """Admit sequences, compute, and release ended ones. Each part is handed over before the next is computed."""
        ...


class _Answer:
    """A chunk or an error for one sequence, delivered on the event loop."""

    def __init__(self, sequence: Sequence) -> None:
        self.sequence = sequence
        self.arrived: asyncio.Queue[Chunk | Exception] = asyncio.Queue()
        self.ended = asyncio.Event()  # its place in the batch is free again

    def put(self, item: Chunk | Exception | None) -> None:
        if item is not None:
            self.arrived.put_nowait(item)
        if ends(item):
            self.ended.set()


def ends(item: Chunk | Exception | None) -> bool:
    return not isinstance(item, Chunk) or item.finish_reason is not None


class SteppingEngine(Engine):
    title: ClassVar[str]  # the engine's name in error messages

    @abstractmethod
    def open(self) -> EngineInfo:
        """Load the model and set `batch`, on the stepping thread."""

    @abstractmethod
    def sequence_of(self, request: GenerateRequest) -> Sequence:
        """Build a sequence, on the event loop. Raises `BadRequest`."""

    batch: Batch

    def load(self) -> EngineInfo:
        self._changed = threading.Condition()
        self._new: list[_Answer] = []
        self._answers: dict[int, _Answer] = {}  # by the sequence's identity
        self._closed = False
        loaded: Future[EngineInfo] = Future()
        threading.Thread(target=self._run, args=(loaded,), name="steps", daemon=True).start()
        return loaded.result()

    def _run(self, loaded: Future[EngineInfo]) -> None:
        try:
            info = self.open()
        except BaseException as error:
            loaded.set_exception(error)
            return
        loaded.set_result(info)
        while self._take_new():
            try:
                for generated in self.batch.step():
                    self._deliver(generated)
            except Exception as error:  # the batch is in an unknown state
                traceback.print_exception(error)
                self._fail(FatalError(f"{self.title} failed: {first_line(error)}"))
                return

    def _take_new(self) -> bool:
        """Wait until there is something to compute; return `False` if the engine is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._new or self.batch.sequences)
            new, self._new = self._new, []
        for answer in new:
            self._answers[id(answer.sequence)] = answer
            self.batch.add(answer.sequence)
        return not self._closed

    def _deliver(self, generated: Generated) -> None:
        if generated:
            self._on_loop([(self._answers[id(sequence)], item) for sequence, item in generated])
        for sequence, item in generated:
            if ends(item):
                del self._answers[id(sequence)]

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self._closed = True
            answers, self._new = [*self._answers.values(), *self._new], []
        self._on_loop([(answer, error) for answer in answers])

    def _on_loop(self, items: list[tuple[_Answer, Chunk | Exception | None]]) -> None:
        def put() -> None:
            for answer, item in items:
                answer.put(item)

        if items and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(put)

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Chunk]:
        self._loop = asyncio.get_running_loop()
        answer = _Answer(self.sequence_of(request))
        with self._changed:
            if self._closed:
                raise EngineUnavailable(f"{self.title} has stopped.")
            self._new.append(answer)
            self._changed.notify()
        try:
            while True:
                item = await answer.arrived.get()
                if isinstance(item, Exception):
                    raise item
                yield item
                if item.finish_reason is not None:
                    return
        finally:
            answer.sequence.cancelled = True
            await asyncio.shield(answer.ended.wait())

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
