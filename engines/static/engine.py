"""What the engines on the static decoder have in common: one thread that computes, and a batch that requests join.

A subclass says how a step is run: traced, compiled, captured.
"""

from __future__ import annotations

import asyncio
import threading
import traceback
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from dataclasses import asdict, dataclass, replace
from functools import partial
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
class Sizes:
    """What is prepared where nothing is given, on one kind of device."""

    batches: tuple[int, ...]
    lengths: tuple[int, ...]
    chunk: int
    prompts: int


ON_CPU = Sizes((1, 4, 8), (512, 2048), chunk=64, prompts=1)
ON_GPU = Sizes((1, 8, 32, 64, 128, 256), (512, 2048, 4096), chunk=512, prompts=4)
CACHE_SHARE = 0.8  # of the memory that a GPU has left once the weights are loaded


def _either(name: str) -> str:
    cpu, gpu = (getattr(sizes, name) for sizes in (ON_CPU, ON_GPU))
    shown = [write_list(one) if isinstance(one, tuple) else str(one) for one in (cpu, gpu)]
    return f"(none: {shown[0]} on a CPU, {shown[1]} on a GPU)"


@dataclass(frozen=True, slots=True)
class StaticOptions(TorchOptions):
    batches: tuple[int, ...] | None = setting(
        None,
        "batch sizes to prepare the decode step for; the largest is the number of requests that run at a time "
        f"{_either('batches')[:-1]}, as far as their caches fit)",
        read=_numbers,
        write=write_list,
    )
    lengths: tuple[int, ...] | None = setting(
        None,
        "context lengths in tokens to prepare the steps for; the largest limits prompt plus answer "
        f"{_either('lengths')}",
        read=_numbers,
        write=write_list,
    )
    chunk: int | None = setting(
        None, f"tokens of a prompt per prefill step, between two decode steps {_either('chunk')}", least=1
    )
    prompts: int | None = setting(None, f"prompts that are read in one prefill step {_either('prompts')}", least=1)

    def buckets(self, context_length: int, on_gpu: bool, rows: Callable[[int], float]) -> Buckets:
        """`rows`: the number of caches of this length that fit, where the batches are not given."""
        usual = ON_GPU if on_gpu else ON_CPU
        lengths = self.lengths or usual.lengths
        chunk, prompts = self.chunk or usual.chunk, self.prompts or usual.prompts
        known = partial(Buckets.of, lengths=lengths, chunk=chunk, context_length=context_length, prompts=prompts)
        if self.batches is not None or not on_gpu:
            return known(self.batches or usual.batches)
        fit = rows(known((1,)).lengths[-1])
        return known(tuple(size for size in usual.batches if size <= fit) or (1,))


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
        """The cache is allocated whole while the engine loads. On a GPU, as much of it as fits, unless it is given."""
        need = super().memory_need(options, size)
        buckets = options.buckets(size.context_length, need.device.startswith("cuda"), rows=lambda length: 1)
        cached = size.need(need.dtype, buckets.cached_tokens)
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
        net = read_network(model, self._device, dtype)
        on_gpu = self._device.type == "cuda"
        buckets = self.options.buckets(
            shape.context_length, on_gpu, lambda length: self._left() / (length * shape.cached_values * dtype.itemsize)
        )
        self._context_length = min(shape.context_length, buckets.lengths[-1])
        self.open_tokenizer()
        self._end_ids = end_ids(net)
        self._batch: Batch = Batch(self._decoder(shape, net, buckets))
        sizes = {**asdict(buckets), "prompts": buckets.prompts[-1]}
        return self.info(name_of(dtype), buckets.batches[-1], threads=torch.get_num_threads(), families=NAMES, **sizes)

    def _left(self) -> float:
        """Bytes of the GPU that keys and values may take."""
        import torch

        free: int = torch.cuda.mem_get_info(self._device)[0]
        return CACHE_SHARE * free

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
