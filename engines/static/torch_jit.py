"""TorchScript: the decode step traced once per shape, frozen, and optimised for inference.

TorchScript takes the Python interpreter out of the step; the operations stay those of eager PyTorch. It is in
maintenance: torch-compile is its successor.

    enginebench serve --engine torch-jit -o batches=1,8
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from engines.static.engine import StaticEngine

if TYPE_CHECKING:
    import torch

    from engines.static.buckets import StepShape
    from engines.static.decoder import RunStep
    from engines.static.step import Step


class TorchJitEngine(StaticEngine):
    name = "torch-jit"

    def prepare(self, step: Step, shape: StepShape, example: tuple[torch.Tensor, ...]) -> RunStep:
        import torch

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that TorchScript is deprecated, and that lengths become constants
            trace: Any = torch.jit.trace  # untyped
            traced = trace(step.eval(), example, check_trace=False)
            run: RunStep = torch.jit.optimize_for_inference(torch.jit.freeze(traced))
            for _ in range(2):  # the first calls profile and optimise
                run(*example)
        return run
