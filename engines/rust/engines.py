"""Candle and Burn, programs in Rust that implement the protocol, and how they are started. `make engines` builds them
from `engines/rust`.

Candle is Hugging Face's library: the models of candle-transformers, one request at a time. With `concurrency` above 1,
or weights quantised while loading, a decoder of ours on Candle's operations runs instead, for Llama-family models. Burn
runs one model on every device: a Llama-family decoder, with continuous batching.

    enginebench serve candle -o concurrency=32
    enginebench serve burn -o threads=4
"""

from __future__ import annotations

import os
import tomllib
from abc import abstractmethod
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from enginebench.settings.schema import setting
from engines.contract.base import Chunk, Engine, EngineInfo, GenerateRequest, Launch, Model
from engines.contract.errors import EngineUnavailable
from engines.machine.devices import automatic_dtype, visible_gpus
from engines.models.size import MemoryNeed, ModelSize
from engines.rust.programs import NO_CARGO, WORKSPACE, cargo_environment, compiler_of, find


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """Options of the engines that run on the continuous-batching scheduler of `protocol/src/batch.rs`."""

    threads: int | None = setting(None, "CPU threads (none: one per core)", least=1)
    concurrency: int = setting(32, "requests that run at a time", least=1, tune="8,16,32,64")
    context: int | None = setting(None, "maximum tokens of prompt plus answer (none: the model's limit)", least=1)
    step_time: float = setting(
        0.25, "seconds by which prefill may delay a decode step", least=0.001, tune="0.05,0.25,1"
    )
    kv_tokens: int | None = setting(
        None, "tokens in the key/value caches of all requests (none: what fits in 80 % of the free memory)", least=1
    )


class RustEngine(Engine):
    """An engine whose program implements the protocol; no Python runs in its process."""

    language = "rust"
    cuda_by = "toolkit"
    program: ClassVar[str]
    crate: ClassVar[str]  # whose version is the engine's

    @classmethod
    def why_not_here(cls) -> str | None:
        if find(cls.program) is not None:
            return None
        if cargo_environment() is None:
            return f"its program is not built, and {NO_CARGO}"
        return "its program is not built for this machine yet; run `make engines` (some minutes)."

    @classmethod
    def version_here(cls) -> str | None:
        if find(cls.program) is None:
            return None
        locked = tomllib.loads((WORKSPACE / "Cargo.lock").read_text())["package"]
        return next((str(package["version"]) for package in locked if package["name"] == cls.crate), None)

    @classmethod
    def compiler_here(cls) -> str | None:
        return compiler_of(cls.program)

    @classmethod
    def memory_need(cls, options: Any, size: ModelSize) -> MemoryNeed:
        device = cls.device_of(options)
        dtype = cls.automatic_dtype(device, options, size) if options.dtype == "auto" else options.dtype
        if options.kv_tokens is None:
            return size.need(dtype, device=device)
        return size.need(dtype, options.kv_tokens, cache_options=("kv_tokens",), device=device)

    @classmethod
    @abstractmethod
    def automatic_dtype(cls, device: str, options: Any, size: ModelSize) -> str:
        """Return the number format that the program takes with `dtype=auto`."""

    @classmethod
    def device_of(cls, options: Any) -> str:
        """Return the device: `auto` is the CPU if the program was built for no other."""
        if options.device != "auto":
            return str(options.device)
        path = find(cls.program)
        with_cuda = path is not None and "cuda" in path.parent.name.split("+")
        return "cuda" if with_cuda and visible_gpus() else "cpu"

    @classmethod
    def launch(cls, options: BatchOptions, model: Model | None) -> Launch:
        threads = {} if options.threads is None else {"RAYON_NUM_THREADS": str(options.threads)}
        return Launch((str(find(cls.program)),), environment=threads)

    def load(self) -> EngineInfo:
        raise EngineUnavailable(f"{self.program} is a program of its own: {self.why_not_here()}")

    def generate(self, request: GenerateRequest) -> AsyncIterator[Chunk]:
        raise EngineUnavailable(f"{self.program} is a program of its own.")


@dataclass(frozen=True, slots=True)
class CandleOptions(BatchOptions):
    concurrency: int = setting(
        1,
        "requests that run at a time. 1: the model of candle-transformers; more: our batching decoder",
        least=1,
        tune="1,8,32",
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16", "q8_0", "q4_0", "gguf"] = setting(
        "auto",
        "number format of the weights. auto: float32 on a CPU, bfloat16 on a GPU (float16 below compute capability "
        "8.0), a GGUF file as it is; "
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
        return automatic_dtype(device)


@dataclass(frozen=True, slots=True)
class BurnOptions(BatchOptions):
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = setting(
        "auto", "auto: float32 on a CPU, bfloat16 on a GPU (float16 below compute capability 8.0)"
    )
    device: str = setting("auto", "auto, cpu, or what it was built with: cuda, rocm, metal, wgpu")


class BurnEngine(RustEngine):
    Options = BurnOptions
    program = "burn"
    crate = "burn"

    @classmethod
    def launch(cls, options: Any, model: Model | None) -> Launch:
        """Add how many kernels CubeCL tries on a GPU for each new size of product, unless it is set."""
        started = super().launch(options, model)
        level = os.environ.get("CUBECL_AUTOTUNE_LEVEL", "minimal")
        return replace(started, environment={**started.environment, "CUBECL_AUTOTUNE_LEVEL": level})

    @classmethod
    def automatic_dtype(cls, device: str, options: BurnOptions, size: ModelSize) -> str:
        return automatic_dtype(device)
