"""Candle, Hugging Face's Rust library: the models of candle-transformers, one request at a time.

With `concurrency` above 1, or weights quantised while loading, a decoder of ours on Candle's operations runs instead,
for Llama-family models. The program is `engines/rust/candle`, built by `make engines`; this file declares its options.

    enginebench serve --engine candle -o concurrency=32
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from engines.rust.programs import BatchOptions, RustEngine
from settings.schema import setting

if TYPE_CHECKING:
    from engines.models.size import ModelSize

Dtype = Literal["auto", "float32", "bfloat16", "float16", "q8_0", "q4_0", "gguf"]


@dataclass(frozen=True, slots=True)
class CandleOptions(BatchOptions):
    concurrency: int = setting(
        1, "requests that run at a time. 1: the model of candle-transformers; more: our batching decoder", least=1
    )
    dtype: Dtype = setting(
        "auto",
        "number format of the weights. auto: float32 on a CPU, bfloat16 on a GPU, a GGUF file as it is; "
        "gguf: as in the model's GGUF file; q…: quantised while loading, in our decoder",
    )
    device: str = setting("auto", "auto, cpu, cuda, cuda:1, metal …")


class CandleEngine(RustEngine):
    Options = CandleOptions
    program = "candle"
    crate = "candle-core"

    @classmethod
    def automatic_dtype(cls, device: str, options: CandleOptions, size: ModelSize) -> str:
        if size.gguf is not None and options.concurrency == 1:
            return "gguf"
        return "float32" if device == "cpu" else "bfloat16"
