"""The common part of the engines on the static decoder: their sizes, their cache, and how the model is loaded.

A subclass says how a step is run: traced, compiled, captured.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from enginebench.settings.schema import read_sizes, setting, write_list
from engines.contract.base import EngineInfo, EngineStats, GenerateRequest
from engines.contract.stepping import SteppingEngine
from engines.models.size import MemoryNeed, ModelSize
from engines.pytorch.attention import KERNELS, Kernel, choose, tried_out
from engines.pytorch.device import OnTorch, TorchOptions, chosen_dtype, name_of
from engines.pytorch.network import read_config, read_network
from engines.static.step_shapes import Buckets

if TYPE_CHECKING:
    import torch

    from engines.static.batch import Batch, Sequence
    from engines.static.decoder import RunStep
    from engines.static.step import Step
    from engines.static.step_shapes import StepShape


@dataclass(frozen=True, slots=True)
class Sizes:
    """The defaults of one kind of device."""

    batches: tuple[int, ...]
    lengths: tuple[int, ...]
    chunk: int
    prompts: int


ON_CPU = Sizes((1, 4, 8), (512, 2048), chunk=64, prompts=1)
ON_GPU = Sizes((1, 8, 32, 64, 128, 256), (512, 2048, 4096), chunk=512, prompts=4)
CACHE_SHARE = 0.8  # share of the memory that a GPU has left after loading the weights


def _either(name: str) -> str:
    cpu, gpu = (getattr(sizes, name) for sizes in (ON_CPU, ON_GPU))
    shown = [write_list(size) if isinstance(size, tuple) else str(size) for size in (cpu, gpu)]
    return f"(none: {shown[0]} on a CPU, {shown[1]} on a GPU)"


@dataclass(frozen=True, slots=True)
class StaticOptions(TorchOptions):
    batches: tuple[int, ...] | None = setting(
        None,
        "batch sizes to prepare the decode step for; the largest is the number of requests that run at a time "
        f"{_either('batches')[:-1]}, as far as their caches fit)",
        read=read_sizes,
        write=write_list,
    )
    lengths: tuple[int, ...] | None = setting(
        None,
        "context lengths in tokens to prepare the steps for; the largest limits prompt plus answer "
        f"{_either('lengths')}",
        read=read_sizes,
        write=write_list,
    )
    chunk: int | None = setting(  # a shape of one token is a decode step
        None, f"tokens of a prompt per prefill step, between two decode steps {_either('chunk')}", least=2
    )
    prompts: int | None = setting(None, f"prompts that are read in one prefill step {_either('prompts')}", least=1)
    attention: Kernel = setting("auto", f"auto: PyTorch chooses for each shape; {KERNELS}")

    def buckets(
        self, context_length: int, on_gpu: bool, rows: Callable[[int], float], second_cache: bool = False
    ) -> Buckets:
        """Choose the sizes. `rows`: the number of caches of this length that fit, if the batches are not given. A
        `second_cache` adds one for each prompt that is read in one step."""
        usual = ON_GPU if on_gpu else ON_CPU
        lengths = self.lengths or usual.lengths
        chunk, prompts = self.chunk or usual.chunk, self.prompts or usual.prompts
        buckets = partial(Buckets.within, lengths=lengths, chunk=chunk, context_length=context_length, prompts=prompts)
        if self.batches is not None or not on_gpu:
            return buckets(self.batches or usual.batches)
        fit = rows(buckets((1,)).lengths[-1])
        if second_cache:
            fit = max(fit - prompts, fit / 2)  # the largest batch for which batch + min(prompts, batch) fit
        largest = max(1, min(int(fit), usual.batches[-1]))
        return buckets((*(size for size in usual.batches if size < largest), largest))


class StaticEngine(OnTorch, SteppingEngine):
    """A Llama-family model on the static decoder. torch must be called from only one thread: each calling thread gets
    its own team of OpenMP workers, and two teams on the same cores cost a third of the speed."""

    Options = StaticOptions
    options: StaticOptions
    title = "the decoder"
    batch: Batch
    second_cache: ClassVar[bool] = False  # whether prompts are read in a separate cache

    @abstractmethod
    def prepare(self, step: Step, shape: StepShape, example: tuple[torch.Tensor, ...]) -> RunStep:
        """Return a callable that does what the step does, in this shape. Called on the computing thread."""

    @classmethod
    def memory_need(cls, options: StaticOptions, size: ModelSize) -> MemoryNeed:
        """Count the cache, which is allocated while the engine loads: on a GPU as much as fits, unless it is set."""
        need = super().memory_need(options, size)
        buckets = options.buckets(
            size.context_length, need.device.startswith("cuda"), lambda length: 1, cls.second_cache
        )
        second = buckets.prompts[-1] * buckets.lengths[-1] if cls.second_cache else 0
        cached = size.need(need.dtype, buckets.cached_tokens + second)
        return replace(need, cache=cached.cache, cache_options=("batches", "lengths"))

    def open(self) -> EngineInfo:
        import torch

        from engines.static.batch import Batch
        from engines.static.decoder import Decoder
        from engines.static.step import Step
        from engines.static.weights import NAMES, DecoderShape, weights_of

        model = self.open_model()
        self.import_transformers()
        dtype = chosen_dtype(self.options.dtype, self._device)
        self.check_device(self._device)
        choose(self.options.attention, self._device)
        shape = DecoderShape.from_config(read_config(model), self.name)
        net = read_network(model, self._device, dtype)
        self.end_phase("weights")
        on_gpu = self._device.type == "cuda"

        def rows(length: int) -> float:
            free: int = torch.cuda.mem_get_info(self._device)[0]
            return CACHE_SHARE * free / (length * shape.cached_values * dtype.itemsize)

        buckets = self.options.buckets(shape.context_length, on_gpu, rows, self.second_cache)
        self._context_length = min(shape.context_length, buckets.lengths[-1])
        with tried_out(self.options.attention, name_of(dtype)):
            step = Step(shape, weights_of(net, buckets.lengths[-1]))
            self.batch = Batch(Decoder(step, buckets, self.prepare))
        self.end_phase("compile")
        sizes = {**asdict(buckets), "prompts": buckets.prompts[-1]}
        return self.info(name_of(dtype), buckets.batches[-1], threads=torch.get_num_threads(), families=NAMES, **sizes)

    def check_device(self, device: torch.device) -> None:
        """Raise `EngineUnavailable` for a device on which this way of running a step does not exist."""
        return

    def sequence_of(self, request: GenerateRequest) -> Sequence:
        from engines.static.batch import Sequence

        return Sequence(request, self._tokenizer, self._end_ids, self._device, self._context_length)

    def stats(self) -> EngineStats:
        return replace(super().stats(), kv_cache_usage=self.batch.cache_usage)
