"""What the engines on the static decoder have in common: one thread that computes, and a batch that requests join.

A subclass says how a step is run: traced, compiled, captured.
"""

from __future__ import annotations

import asyncio
import threading
import traceback
from abc import abstractmethod
from collections.abc import AsyncIterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from engines.contract.base import Chunk, EngineInfo, EngineStats, GenerateRequest
from engines.contract.errors import EngineUnavailable, FatalError
from engines.models.size import MemoryNeed, ModelSize
from engines.pytorch.device import OnTorch, TorchOptions, chosen_dtype, limit_spinning, name_of
from engines.pytorch.network import end_ids, read_config, read_network
from engines.static.buckets import Buckets
from settings.schema import UserMistake, setting, write_list

if TYPE_CHECKING:
    import torch

    from engines.static.batch import Batch, Generated, Sequence
    from engines.static.buckets import StepShape
    from engines.static.decoder import Decoder, RunStep
    from engines.static.step import Step


def _numbers(text: str) -> tuple[int, ...]:
    """Raises `UserMistake`."""
    try:
        numbers = tuple(sorted({int(one) for one in text.split(",")}))
    except ValueError:
        numbers = ()
    if not numbers or numbers[0] < 1:
        raise UserMistake(f"a list of whole numbers from 1 is expected, as in 1,4,16; not `{text}`.")
    return numbers


@dataclass(frozen=True, slots=True)
class StaticOptions(TorchOptions):
    batches: tuple[int, ...] = setting(
        (1, 4, 8),
        "batch sizes to prepare the decode step for; the largest is the number of requests that run at a time",
        read=_numbers,
        write=write_list,
    )
    lengths: tuple[int, ...] = setting(
        (512, 2048),
        "context lengths in tokens to prepare the steps for; the largest limits prompt plus answer",
        read=_numbers,
        write=write_list,
    )
    chunk: int = setting(64, "prompt tokens per prefill step, between two decode steps", least=1)

    def buckets(self, context_length: int) -> Buckets:
        return Buckets.of(self.batches, self.lengths, self.chunk, context_length)


class _Answer:
    """The asynchronous side of one sequence: what is delivered to it, on the event loop."""

    def __init__(self, sequence: Sequence) -> None:
        self.sequence = sequence
        self.arrived: asyncio.Queue[Chunk | Exception] = asyncio.Queue()
        self.ended = asyncio.Event()  # its row in the batch is free again


class StaticEngine(OnTorch):
    """A Llama-family model on the static decoder. All that torch computes runs on one thread, loading included: each
    computing thread gets its own team of OpenMP workers, and two teams on the same cores cost a third of the speed."""

    Options = StaticOptions
    options: StaticOptions

    @abstractmethod
    def prepare(self, step: Step, shape: StepShape, example: tuple[torch.Tensor, ...]) -> RunStep:
        """A callable that does what the step does, in this shape. Called on the computing thread."""

    @classmethod
    def memory_need(cls, options: StaticOptions, size: ModelSize) -> MemoryNeed:
        """The cache is allocated whole while the engine loads."""
        need = super().memory_need(options, size)
        cached = size.need(need.dtype, options.buckets(size.context_length).cached_tokens)
        return replace(need, cache=cached.cache, cache_options=("batches", "lengths"))

    def load(self) -> EngineInfo:
        limit_spinning()
        self.before_torch()
        self._changed = threading.Condition()
        self._new: list[_Answer] = []
        self._answers: dict[int, _Answer] = {}  # by the sequence's identity
        self._closed = False
        loaded: Future[EngineInfo] = Future()
        threading.Thread(target=self._compute, args=(loaded,), name="decoder", daemon=True).start()
        return loaded.result()

    def before_torch(self) -> None:
        """What has to be set before torch is imported."""
        return

    def _compute(self, loaded: Future[EngineInfo]) -> None:
        try:
            info = self._load()
        except BaseException as error:
            loaded.set_exception(error)
            return
        loaded.set_result(info)
        while self._take_new():
            try:
                for part in (self._batch.admit, self._batch.read, self._batch.advance):
                    self._deliver(part())
            except Exception as error:  # the cache is in an unknown state
                traceback.print_exception(error)
                self._fail(FatalError(f"the decoder failed ({type(error).__name__})."))
                return

    def _load(self) -> EngineInfo:
        import torch

        from engines.static.batch import Batch
        from engines.static.weights import NAMES, DecoderShape

        model = self.open_device()
        dtype = chosen_dtype(self.options.dtype, self._device)
        self.check_device(self._device)
        shape = DecoderShape.of(read_config(model), self.name)
        self._context_length = min(shape.context_length, self.options.lengths[-1])
        buckets = self.options.buckets(shape.context_length)
        net = read_network(model, self._device, dtype)
        self.open_tokenizer()
        self._end_ids = end_ids(net)
        self._batch: Batch = Batch(self._decoder(shape, net, buckets))
        return self.info(name_of(dtype), buckets.batches[-1], threads=torch.get_num_threads(), families=NAMES)

    def _decoder(self, shape: Any, net: Any, buckets: Any) -> Decoder:
        from engines.static.decoder import Decoder
        from engines.static.step import Step
        from engines.static.weights import weights_of

        return Decoder(Step(shape, weights_of(net, buckets.lengths[-1])), buckets, self.prepare)

    def check_device(self, device: torch.device) -> None:
        """Raises `EngineUnavailable` for a device on which this way of running a step does not exist."""
        return

    def _take_new(self) -> bool:
        """Wait until there is something to compute. `False` when the engine is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._new or self._batch.sequences)
            new, self._new = self._new, []
        for answer in new:
            self._answers[id(answer.sequence)] = answer
            self._batch.add(answer.sequence)
        return not self._closed

    def _deliver(self, generated: Generated) -> None:
        """Hand over all chunks of a step in one call of the event loop."""
        if generated:
            self._on_loop(self._hand_over, [(self._answers[id(one)], chunk) for one, chunk in generated])
        for sequence, chunk in generated:
            if chunk is None or chunk.finish_reason is not None:
                del self._answers[id(sequence)]

    def _hand_over(self, generated: list[tuple[_Answer, Chunk | None]]) -> None:
        for answer, chunk in generated:
            if chunk is not None:
                answer.arrived.put_nowait(chunk)
            if chunk is None or chunk.finish_reason is not None:
                answer.ended.set()

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self._closed = True
            answers, self._new = [*self._answers.values(), *self._new], []

        def end() -> None:
            for answer in answers:
                answer.arrived.put_nowait(error)
                answer.ended.set()

        self._on_loop(end)

    def _on_loop(self, function: Any, *args: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *args)

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Chunk]:
        from engines.static.batch import Sequence

        self._loop = asyncio.get_running_loop()
        sequence = Sequence(request, self._tokenizer, self._end_ids, self._device, self._context_length)
        answer = _Answer(sequence)
        with self._changed:
            if self._closed:
                raise EngineUnavailable("the decoder has stopped.")
            self._new.append(answer)
            self._changed.notify()
        try:
            while True:
                arrived = await answer.arrived.get()
                if isinstance(arrived, Exception):
                    raise arrived
                yield arrived
                if arrived.finish_reason is not None:
                    return
        finally:
            sequence.cancelled = True
            await asyncio.shield(answer.ended.wait())

    def stats(self) -> EngineStats:
        return replace(super().stats(), kv_cache_usage=self._batch.cache_usage)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
