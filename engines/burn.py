"""Burn, a Rust library that runs one model on every device: a Llama-family decoder, with continuous batching.

The program is `engines/rust/burn`, built by `make engines`; this file declares its options.

    enginebench serve --engine burn -o threads=4
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from engines.rust.programs import BatchOptions, RustEngine
from settings.schema import setting

if TYPE_CHECKING:
    from engines.models.size import ModelSize


@dataclass(frozen=True, slots=True)
class BurnOptions(BatchOptions):
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = setting(
        "auto", "auto: float32 on a CPU, float16 on a GPU"
    )
    device: str = setting("auto", "auto, cpu, or what it was built with: cuda, rocm, metal, wgpu")


class BurnEngine(RustEngine):
    Options = BurnOptions
    program = "burn"
    crate = "burn"

    @classmethod
    def automatic_dtype(cls, device: str, options: BurnOptions, size: ModelSize) -> str:
        return "float32" if device == "cpu" else "float16"
