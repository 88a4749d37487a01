"""DeepSpeed's inference on NVIDIA GPUs: a model of Transformers with DeepSpeed's kernels, in an environment of its own.

`deepspeed.init_inference` puts its fused kernels in place of the layers that it knows. Decode loop, sampling and text
are those of `transformers`, so that the difference to it is DeepSpeed's. There is no batching: that was part of another
package, DeepSpeed-MII.

    enginebench engines install deepspeed
    enginebench serve deepspeed
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from enginebench.settings.schema import setting
from engines.contract.base import EngineInfo, Model
from engines.contract.errors import EngineUnavailable, first_line
from engines.models.fetch import context_length
from engines.process.installed import Environment, InstalledEngine, Packages
from engines.transformers import TransformersEngine, TransformersOptions


@dataclass(frozen=True, slots=True)
class DeepSpeedOptions(TransformersOptions):
    kernels: bool = setting(True, "DeepSpeed's kernels in place of the layers that it knows")
    python: str | None = setting(None, "interpreter that has the library (none: the one of `engines install`)")


class DeepSpeedEngine(InstalledEngine, TransformersEngine):
    Options = DeepSpeedOptions
    options: DeepSpeedOptions
    name = library = "deepspeed"
    cuda_by = "torch"
    environment = Environment(
        name,
        "deepspeed",
        # Its kernels are compiled at their first use.
        cuda=Packages(
            ("deepspeed==0.19.8", "transformers==5.23.0", "accelerate", "safetensors", "tokenizers"), system=("nvcc",)
        ),
    )

    def _load(self) -> EngineInfo:
        info = super()._load()
        try:
            self._first_step()
        except Exception as error:  # a kernel that fails, a layer of another version of Transformers
            raise EngineUnavailable(f"DeepSpeed's kernels cannot compute this model: {first_line(error)}") from error
        return info

    def _read(self, model: Model, dtype: Any, attention: str | None) -> Any:
        if self._device.type != "cuda":
            raise EngineUnavailable(f"DeepSpeed's kernels run on CUDA devices, not on {self._device}.")
        net = super()._read(model, dtype, attention)
        import deepspeed

        try:
            return deepspeed.init_inference(net, config=self.config(dtype, context_length(model.folder))).module
        except Exception as error:  # of several kinds: an unknown model, a compiler that fails
            raise EngineUnavailable(f"DeepSpeed could not take {model.name}: {first_line(error)}") from error

    def config(self, dtype: Any, longest: int) -> dict[str, Any]:
        """Return the settings of `init_inference`, whose kernels have a cache for `longest` tokens."""
        return {
            "dtype": dtype,
            "replace_with_kernel_inject": self.options.kernels,
            "tensor_parallel": {"tp_size": 1},
            "max_out_tokens": longest,
        }
