"""CUDA graphs: the decode step captured once per batch size, and replayed with one launch per token.

An eager step launches hundreds of kernels, and on a fast GPU one user's decoding waits for the host that launches them.
A captured step is launched as a whole. It reads its inputs from fixed places, so each token's are copied there first.
Chunks of prompts are large enough to keep the GPU busy, and run without capture. `compile-cuda-graph` captures the
layers that Inductor compiled.

    enginebench serve --engine compile-cuda-graph -o batches=1,8,32
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engines.contract.base import EngineUnavailable
from engines.pytorch.device import missing_gpu
from engines.static.engine import StaticEngine
from engines.static.torch_compile import TorchCompileEngine, compiled_step, keep_compilations

if TYPE_CHECKING:
    import torch

    from engines.static.buckets import StepShape
    from engines.static.decoder import RunStep
    from engines.static.step import Step

WARM_UP_STEPS = 3  # before a capture: libraries allocate their workspaces and choose their kernels at the first calls


class CudaGraphEngine(StaticEngine):
    name = "cuda-graph"

    @classmethod
    def why_not_here(cls) -> str | None:
        return super().why_not_here() or missing_gpu()

    def check_device(self, device: torch.device) -> None:
        if device.type != "cuda":
            raise EngineUnavailable(f"{self.name} runs on a CUDA device, not on {device}.")

    def prepare(self, step: Step, shape: StepShape, example: tuple[torch.Tensor, ...]) -> RunStep:
        return step if shape.tokens > 1 else captured(step, example)


class CompileCudaGraphEngine(CudaGraphEngine):
    name = "compile-cuda-graph"

    @classmethod
    def why_not_here(cls) -> str | None:
        return TorchCompileEngine.why_not_here() or missing_gpu()

    def before_torch(self) -> None:
        keep_compilations()

    def prepare(self, step: Step, shape: StepShape, example: tuple[torch.Tensor, ...]) -> RunStep:
        return super().prepare(compiled_step(step, example), shape, example)


def captured(step: RunStep, example: tuple[torch.Tensor, ...]) -> RunStep:
    """The step as a CUDA graph. The cache in `example` is the one that every replay reads and writes."""
    import torch

    ids, starts, last, *cache = example
    inputs = ids.clone(), starts.clone(), last.clone()
    new_stream: Any = torch.cuda.Stream  # untyped
    beside = new_stream()  # neither warm-up nor capture may run on the default stream
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(WARM_UP_STEPS):
            step(*inputs, *cache)
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        logits = step(*inputs, *cache)

    def run(ids: torch.Tensor, starts: torch.Tensor, last: torch.Tensor, *cache: torch.Tensor) -> torch.Tensor:
        for place, given in zip(inputs, (ids, starts, last), strict=True):
            place.copy_(given)
        graph.replay()
        return logits

    return run
