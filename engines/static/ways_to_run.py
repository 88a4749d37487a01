"""The ways in which a step is run: traced by TorchScript, compiled by Inductor, captured as a CUDA graph. Four engines.

TorchScript takes the Python interpreter out of the step; the operations stay those of eager PyTorch. It is in
maintenance: torch-compile is its successor.

torch.compile: for each shape, a layer and the head are compiled by Inductor; the one compiled layer serves all layers.
A layer gets its weights and its part of the cache as inputs, so its compilation takes some seconds instead of a minute
for all layers unrolled. Compiled code is kept in the user's cache.

CUDA graphs: an eager step launches hundreds of kernels, and on a fast GPU decoding waits for the host that launches
them. A step captured once per shape is launched as a whole, with its inputs and its cache at fixed places. All graphs
share one pool of memory: a step's logits are used before the next one runs. Prompts are read in a small cache of their
own, and copied, since they are for other rows each time. `compile-cuda-graph` captures the layers that Inductor
compiled.

    enginebench serve torch-jit -o batches=1,8
    enginebench serve torch-compile
    enginebench serve compile-cuda-graph -o batches=1,8,32
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engines.contract.errors import EngineUnavailable, first_line
from engines.pytorch.compiling import missing_compiler
from engines.pytorch.device import missing_gpu
from engines.static.engine import StaticEngine

if TYPE_CHECKING:
    import torch

    from engines.static.decoder import RunStep
    from engines.static.step import Step
    from engines.static.step_shapes import StepShape

SHAPES_KEPT = 256  # compilations of one function that torch.compile keeps; it stops at 8 by default
INPUTS = 3  # number of a step's inputs before its cache
CHECKED = INPUTS + 1  # inputs checked at every replay: if the first tensor of the cache is in place, so are all
WARM_UP_STEPS = 3  # before a capture: libraries allocate their workspaces and choose their kernels at the first calls


class TorchJitEngine(StaticEngine):
    name = "torch-jit"

    def prepare(self, step: Step, shape: StepShape, example: tuple[torch.Tensor, ...]) -> RunStep:
        import torch

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about TorchScript's deprecation and lengths that become constants
            trace: Any = torch.jit.trace  # untyped
            traced = trace(step.eval(), example, check_trace=False)
            frozen = torch.jit.freeze(traced)
            on_cpu = example[0].device.type == "cpu"  # a GPU would keep all weights transposed, once for each shape
            run: RunStep = torch.jit.optimize_for_inference(frozen) if on_cpu else frozen
            for _ in range(2):  # the first calls profile and optimise
                run(*example)
        return run


class TorchCompileEngine(StaticEngine):
    name = "torch-compile"

    @classmethod
    def why_not_here(cls) -> str | None:
        return StaticEngine.why_not_here() or missing_compiler()

    def prepare(self, step: Step, shape: StepShape, example: tuple[torch.Tensor, ...]) -> RunStep:
        return compiled_step(step, example)


def compiled_step(step: Step, example: tuple[torch.Tensor, ...]) -> Step:
    """Return the step with compiled parts. Raises `EngineUnavailable`, in one sentence, if that fails."""
    import torch

    from engines.static.step import Head, Layer, Step

    torch._dynamo.config.recompile_limit = SHAPES_KEPT
    torch._dynamo.config.accumulated_recompile_limit = SHAPES_KEPT
    compile_part: Any = torch.compile  # untyped
    try:
        layer, head = (compile_part(part(step.shape), fullgraph=True, dynamic=False) for part in (Layer, Head))
        compiled = Step(step.shape, step.weights, layer, head)
        compiled(*example)  # `torch.compile` compiles at the first call
        return compiled
    except Exception as error:
        raise EngineUnavailable(f"Inductor could not compile a step: {first_line(error)}") from error


class CudaGraphEngine(StaticEngine):
    name = "cuda-graph"
    second_cache = True
    _pool: Any = None
    _stream: Any = None  # of all warm-ups
    _prompt_cache: tuple[torch.Tensor, ...] = ()  # a cache in which prompts are read

    @classmethod
    def why_not_here(cls) -> str | None:
        return super().why_not_here() or missing_gpu()

    def check_device(self, device: torch.device) -> None:
        if device.type != "cuda":
            raise EngineUnavailable(f"{self.name} runs on a CUDA device, not on {device}.")

    def prepare(self, step: Step, shape: StepShape, example: tuple[torch.Tensor, ...]) -> RunStep:
        import torch

        if self._pool is None:
            new_stream: Any = torch.cuda.Stream  # untyped
            self._pool, self._stream = torch.cuda.graph_pool_handle(), new_stream(example[0].device)
        if shape.tokens == 1:
            return captured(self.run_as(step, example), example, self._pool, self._stream)
        inputs, cache = example[:INPUTS], example[INPUTS:]
        if not self._prompt_cache:  # the first shape is the largest
            self._prompt_cache = tuple(
                torch.zeros(tensor.shape, dtype=tensor.dtype, device=tensor.device) for tensor in cache
            )
        own_cache = tuple(tensor[: shape.batch, : shape.length] for tensor in self._prompt_cache)
        buffers = (*inputs, *own_cache)
        return ReadInOwnCache(captured(self.run_as(step, buffers), buffers, self._pool, self._stream), own_cache)

    def run_as(self, step: Step, example: tuple[torch.Tensor, ...]) -> RunStep:
        """Return the part of a step that is captured."""
        return step


class CompileCudaGraphEngine(CudaGraphEngine):
    name = "compile-cuda-graph"

    @classmethod
    def why_not_here(cls) -> str | None:
        return TorchCompileEngine.why_not_here() or missing_gpu()

    def run_as(self, step: Step, example: tuple[torch.Tensor, ...]) -> RunStep:
        return compiled_step(step, example)


@dataclass(frozen=True, slots=True)
class CapturedStep:
    graph: Any
    logits: torch.Tensor
    step: RunStep
    example: tuple[torch.Tensor, ...]

    def __call__(self, *inputs: torch.Tensor) -> torch.Tensor:
        expected = self.example[:CHECKED]
        assert all(
            tensor.data_ptr() == example.data_ptr() for tensor, example in zip(inputs[:CHECKED], expected, strict=True)
        )
        self.graph.replay()
        return self.logits


@dataclass(frozen=True, slots=True)
class ReadInOwnCache:
    """A captured step on its own cache: the rows are copied into it, and back with the new keys and values."""

    step: CapturedStep
    own_cache: tuple[torch.Tensor, ...]

    def __call__(self, *inputs: torch.Tensor) -> torch.Tensor:
        import torch

        rows = inputs[INPUTS:]
        torch._foreach_copy_(self.own_cache, rows)
        logits = self.step(*inputs[:INPUTS], *self.own_cache)
        torch._foreach_copy_(rows, self.own_cache)
        return logits


def captured(step: RunStep, example: tuple[torch.Tensor, ...], pool: Any, stream: Any) -> CapturedStep:
    """Return the step as a CUDA graph, on the device of its inputs. `example` are the very tensors, inputs and cache,
    that every replay reads and writes. A graph keeps addresses, not tensors: the result keeps these alive.

    `stream` is for the warm-up: one for all shapes, because cuBLAS keeps a workspace for every stream.
    """
    import torch

    # On another device than the current one a capture is empty, and replays whatever the memory holds
    # (https://github.com/pytorch/pytorch/issues/87794).
    with torch.cuda.device(example[0].device):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # neither warm-up nor capture may run on the default stream
            for _ in range(WARM_UP_STEPS):
                step(*example)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            logits = step(*example)
    return CapturedStep(graph, logits, step, example)
