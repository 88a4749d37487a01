"""Shares of the device that an engine uses: the minimum that a step must read and multiply, over the device's limits.

One request's decode reads every weight once per token, so bytes of weights ÷ bandwidth is the minimum time of a token
for any engine; a prefill is bounded by multiplications instead (the roofline of Williams et al. 2009). Both limits are
the best of several passes, not the typical one, because a limit cannot be exceeded.

    python -m engines.bench.roofline                  # this machine's CPU
    python -m engines.bench.roofline cuda bfloat16    # a GPU, with torch and its CUDA events
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

import numpy as np

from engines.bench.measure import Key
from engines.bench.result import ARITHMETIC, BANDWIDTH, Row
from engines.contract.base import Model
from engines.machine.devices import BY_BUS, usable_cores
from engines.models.presets import PRESETS, RANDOM
from engines.models.size import BITS, FLOATS
from engines.models.stored import config_of, tensors_of

ARRAY_BYTES = 1 << 30  # far above any L3 cache
GPU_ARRAY_BYTES = 1 << 32  # far above any L2 cache of a GPU
PASSES = 6
MIN_SIDE, SIDE = 256, 2048  # rows of the square matrices that are multiplied
LONG_ENOUGH = 0.05  # seconds of a product, from which the size of the matrices no longer matters
GPU_SIDE = 8192
HALF = ("bfloat16", "float16")
NOISE = 0.05  # allowed excess of a share over 1: limit and engine are measured at different times
MEASURING_TIMEOUT = 120.0  # seconds
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def read_bandwidth(size: int = ARRAY_BYTES) -> float:
    """Return bytes per second at which a thread per core reads an array in memory."""
    parts = np.array_split(np.ones(size // 8, np.int64), len(usable_cores()))
    with ThreadPoolExecutor(len(parts)) as threads:
        # The cheapest operation on a word, for which NumPy needs no more time than the memory.
        return size / _fastest(lambda: list(threads.map(np.bitwise_or.reduce, parts)))


def _fastest(work: Callable[[], object]) -> float:
    """Return the seconds of the fastest pass."""
    return min(_seconds(work) for _ in range(PASSES))


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def product_rate(product: Callable[[int], Callable[[], object]]) -> float:
    """Return operations per second of a product of n × n matrices, which takes 2n³. `product` prepares one of size
    n. Small sizes come first: a format that the CPU does not support may be a thousand times slower."""
    side = MIN_SIDE
    while side < SIDE and _seconds(product(side)) < LONG_ENOUGH:
        side *= 2
    return 2 * side**3 / _fastest(product(side))


def cpu_flops() -> float:
    """Measure float32 operations per second by NumPy's BLAS on all cores."""

    def product(side: int) -> Callable[[], object]:
        a = np.ones((side, side), np.float32)
        out = np.empty_like(a)
        return lambda: np.matmul(a, a, out=out)

    return product_rate(product)


@dataclass(frozen=True, slots=True)
class Limit:
    """The limits of a device: bytes per second that it reads, and floating-point operations per second of `dtype`."""

    device: str
    dtype: str
    bandwidth: float
    flops: float

    def rows(self, repeat: int) -> Iterator[Row]:
        place = f"{self.device}, {self.dtype}"
        yield Row("memory bandwidth", "largest", "B/s", self.bandwidth, repeat, stage=place)
        yield Row("arithmetic", "largest", "FLOP/s", self.flops, repeat, stage=place)


def _gpu_limit(device: str, dtype: str) -> Limit:
    """Measure with CUDA events."""
    import torch

    def fastest(work: Callable[[], object]) -> float:
        work()  # the first call picks an algorithm
        durations = []
        for _ in range(PASSES):
            began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            began.record()
            work()
            ended.record()
            ended.synchronize()
            durations.append(began.elapsed_time(ended) / 1e3)  # `elapsed_time` is in milliseconds
        return float(min(durations))

    with torch.cuda.device(device), torch.inference_mode():
        free, _ = torch.cuda.mem_get_info()
        array = torch.ones(min(GPU_ARRAY_BYTES, free // 4) // 4, device=device)
        bandwidth = array.numel() * 4 / fastest(array.sum)
        del array
        a = torch.randn((GPU_SIDE, GPU_SIDE), device=device).to(getattr(torch, dtype))
        flops = 2 * GPU_SIDE**3 / fastest(lambda: a @ a)
    return Limit(device, dtype, bandwidth, flops)


def measured_here(device: str, dtype: str) -> Limit:
    """Measure in this process. Raises `ImportError` if torch is needed and missing."""
    if device.partition(":")[0] == "cuda":
        return _gpu_limit(device, dtype)
    bandwidth = read_bandwidth()
    if dtype not in HALF:
        return Limit("cpu", "float32", bandwidth, cpu_flops())
    import torch

    def product(side: int) -> Callable[[], object]:
        a = torch.ones((side, side), dtype=getattr(torch, dtype))
        return lambda: a @ a

    return Limit("cpu", dtype, bandwidth, product_rate(product))


def arithmetic_of(dtype: str) -> str:
    """Return the format in which the limit is measured for an engine whose weights have `dtype`."""
    return dtype if dtype in HALF else "float32"


async def measure_limit(device: str, dtype: str) -> Limit | None:
    """Measure in a child process, which frees its memory. Return `None` for a device that cannot be measured."""
    kind = device.partition(":")[0]
    if kind not in {"cpu", "cuda"}:
        return None
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "engines.bench.roofline", device, arithmetic_of(dtype)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**BY_BUS, **os.environ},
    )
    try:
        async with asyncio.timeout(MEASURING_TIMEOUT):
            output, _ = await process.communicate()
        limit: Mapping[str, object] = json.loads(output)
    except (TimeoutError, ValueError):
        return None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return Limit(**limit)  # type: ignore[arg-type]  # as this module wrote it


@dataclass(frozen=True, slots=True)
class ModelCost:
    """Numbers of weights: `matrices` that a decoded token multiplies, of which `head` belong to the output head;
    `vectors` are norms and biases. `attention`: layers × width of the queries."""

    matrices: int
    head: int
    vectors: int
    attention: int

    def bytes_per_step(self, dtype: str) -> float | None:
        """Return bytes of weights that one step reads for the whole batch; `None` for an unknown format."""
        bits = BITS.get(dtype)
        return None if bits is None else self.matrices * bits / 8 + self.vectors * 4

    @property
    def decode_flops(self) -> float:
        """Return operations per token: a multiplication and an addition for each weight (Kaplan et al. 2020)."""
        return 2.0 * self.matrices

    def prefill_flops(self, tokens: int) -> float:
        """Return operations of one prompt. The head is needed only for the last token; causal attention multiplies
        half a square for the scores and half for the values."""
        return 2.0 * tokens * (self.matrices - self.head) + 2.0 * self.head + 2.0 * self.attention * tokens**2


EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")


def cost_of(model: Model) -> ModelCost | None:
    """Count weights from the files or the preset.

    Return `None` if neither has them, and for mixtures of experts, because a token reads only some of the experts.
    """
    config = config_of(model.folder)
    if any(config.get(name) for name in EXPERTS):
        return None
    head = int(config.get("vocab_size", 0)) * int(config.get("hidden_size") or config.get("n_embd") or 0)
    tied = bool(config.get("tie_word_embeddings", True))
    shapes = {name: tensor.shape for name, tensor in tensors_of(model.folder).items()}
    if shapes:
        if HEAD in shapes and not tied:
            shapes.pop(EMBEDDING, None)  # a token reads one row of it
        elif EMBEDDING in shapes:
            shapes.pop(HEAD, None)  # the same weights again
        matrices = sum(prod(shape) for shape in shapes.values() if len(shape) > 1)
        vectors = sum(prod(shape) for shape in shapes.values() if len(shape) < 2)
        return ModelCost(matrices, head, vectors, _attention(config))
    preset = PRESETS.get(model.name.removeprefix(RANDOM))
    if preset is None:
        return None
    return ModelCost(preset.parameters - (0 if tied else head), head, 0, _attention(config))


def _attention(config: Mapping[str, Any]) -> int:
    heads = int(config.get("num_attention_heads") or config.get("n_head") or 0)
    if not heads:  # a state-space model has none
        return 0
    width = int(config.get("hidden_size") or config.get("n_embd") or 0)
    layers = int(config.get("num_hidden_layers") or config.get("n_layer") or 0)
    return layers * heads * int(config.get("head_dim") or width // heads)


def shares_of(
    key: Key, value: float, dtype: str, cost: ModelCost, limit: Limit, gpus: int
) -> Iterator[tuple[str, float | None]]:
    """Yield the shares of the limits that a measured value reaches, by statistic; nothing for a metric without a bound.

    The limit is that of one GPU; `gpus` share the model with tensor parallelism. Memory counts only the weights, which
    a step reads once for its whole batch. Arithmetic has no share for quantised weights, because the engine chooses the
    format in which they are multiplied. A share above 1 is `None`, because the limit does not apply, for example if the
    weights stay in a processor's cache.
    """
    name, size = key
    match name:
        case "decode":
            steps, flops = 1 / value, cost.decode_flops / value
        case "batch decode" if size:
            steps, flops = value / size, cost.decode_flops * value
        case "prefill" if size:
            steps, flops = 1 / value, cost.prefill_flops(size) / value
        case _:
            return
    step = cost.bytes_per_step(dtype)
    if step is not None:
        yield BANDWIDTH, _bounded(step * steps / (gpus * limit.bandwidth))
    if dtype in FLOATS:
        yield ARITHMETIC, _bounded(flops / (gpus * limit.flops))


def _bounded(share: float) -> float | None:
    return None if share > 1 + NOISE else min(share, 1.0)


def main() -> None:
    device, dtype = [*sys.argv[1:], *("cpu", "float32")[len(sys.argv) - 1 :]]
    limit = measured_here(device, dtype)
    sys.stdout.write(json.dumps(asdict(limit)) + "\n")


if __name__ == "__main__":
    main()
