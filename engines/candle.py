"""Candle, Hugging Face's Rust library: Llama-family models, with requests joining and leaving a running batch.

The program is `engines/rust/candle`, built by `make engines`; here are its settings.

    enginebench serve --engine candle -o dtype=q8_0
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from engines.rust_programs import RustEngine

Dtype = Literal["auto", "float32", "bfloat16", "float16", "q8_0", "q4_0", "q4_1", "q4_k", "gguf"]


@dataclass(frozen=True, slots=True)
class CandleOptions:
    dtype: Dtype = field(
        default="auto",
        metadata={
            "help": "how weights are kept. auto: float32 on a CPU, bfloat16 on a GPU, a lone GGUF file as it is; "
            "gguf: as in the model's GGUF file; q…: quantised while loading"
        },
    )
    device: str = field(default="auto", metadata={"help": "auto, cpu, cuda, cuda:1, metal …"})
    threads: int | None = field(default=None, metadata={"help": "CPU threads (none: one for each core)"})
    concurrency: int = field(default=32, metadata={"help": "requests that run at a time"})
    context: int | None = field(default=None, metadata={"help": "tokens a request may hold (none: the model's own)"})
    step_tokens: int | None = field(
        default=None, metadata={"help": "prompt and answer tokens fed in one step (none: 256 on a CPU, 2048 on a GPU)"}
    )

    def __post_init__(self) -> None:
        for name in ("threads", "concurrency", "context", "step_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"option `{name}` is 1 or more.")


class CandleEngine(RustEngine):
    Options = CandleOptions
    program = "candle"
    crate = "candle-core"
