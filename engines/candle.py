"""Candle, Hugging Face's Rust library: Llama-family models, with requests joining and leaving a running batch.

The program is `engines/rust/candle`, built by `make engines`; this file declares its options.

    enginebench serve --engine candle -o dtype=q8_0
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engines.rust.programs import BatchOptions, RustEngine
from settings_schema import setting

Dtype = Literal["auto", "float32", "bfloat16", "float16", "q8_0", "q4_0", "q4_1", "q4_k", "gguf"]


@dataclass(frozen=True, slots=True)
class CandleOptions(BatchOptions):
    dtype: Dtype = setting(
        "auto",
        "number format of the weights. auto: float32 on a CPU, bfloat16 on a GPU, a GGUF file as it is; "
        "gguf: as in the model's GGUF file; q…: quantised while loading",
    )
    device: str = setting("auto", "auto, cpu, cuda, cuda:1, metal …")


class CandleEngine(RustEngine):
    Options = CandleOptions
    program = "candle"
    crate = "candle-core"
