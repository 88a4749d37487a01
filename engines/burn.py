"""Burn, a Rust library that runs one model on every device: a Llama-family decoder, with continuous batching.

The program is `engines/rust/burn`, built by `make engines`; here are its settings.

    enginebench serve --engine burn -o threads=4
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from engines.rust_programs import RustEngine


@dataclass(frozen=True, slots=True)
class BurnOptions:
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = field(
        default="auto", metadata={"help": "auto: float32 on a CPU, float16 on a GPU"}
    )
    device: str = field(
        default="auto", metadata={"help": "auto, cpu, or what it was built with: cuda, rocm, metal, wgpu"}
    )
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


class BurnEngine(RustEngine):
    Options = BurnOptions
    program = "burn"
    crate = "burn"
