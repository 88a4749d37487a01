"""Memory bandwidth and arithmetic throughput of a device, measured: the two limits of a roofline model.

One request's decode reads every weight once per token, so bytes of weights ÷ bandwidth is the least time that a token
can take, whatever the engine; a prefill is bounded by multiplications instead (Williams et al. 2009). Both are measured
by what is fast rather than typical: the best of several passes, because a limit is what cannot be exceeded.

    python -m bench.roofline.limits                  # this machine's CPU
    python -m bench.roofline.limits cuda bfloat16    # a GPU, with torch and its CUDA events
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from engines.machine.devices import usable_cores

ARRAY_BYTES = 1 << 30  # far above any L3 cache
GPU_ARRAY_BYTES = 1 << 32  # and any L2 cache of a GPU
PASSES = 6
SIDE = 2048  # of the square matrices that are multiplied
GPU_SIDE = 8192
HALF = ("bfloat16", "float16")
MEASURING_TIMEOUT = 120.0  # seconds


@dataclass(frozen=True, slots=True)
class Limit:
    """Bytes per second that can be read, and floating-point operations per second of `dtype`; `None` where unknown."""

    device: str
    dtype: str
    bandwidth: float | None
    flops: float | None
    by: str  # the library that measured


class Reader:
    """An array and a thread per core to read it. Build it once: filling a gigabyte takes longer than reading it."""

    def __init__(self, size: int = ARRAY_BYTES) -> None:
        self._size = size
        self._parts = np.array_split(np.ones(size // 8, np.int64), len(usable_cores()))

    def bandwidth(self) -> float:
        """Bytes per second."""
        with ThreadPoolExecutor(len(self._parts)) as threads:
            # The cheapest thing to do with a word: numpy needs no more than the memory's time for it.
            seconds = _fastest(lambda: list(threads.map(np.bitwise_or.reduce, self._parts)))
        return self._size / seconds


def _fastest(work: Callable[[], object]) -> float:
    """Seconds of the fastest pass."""
    taken = []
    for _ in range(PASSES):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return min(taken)


def cpu_flops(side: int = SIDE) -> float:
    """Of float32, by NumPy's BLAS on all cores. A product of n × n matrices takes 2n³ operations."""
    a = np.ones((side, side), np.float32)
    out = np.empty_like(a)
    return 2 * side**3 / _fastest(lambda: np.matmul(a, a, out=out))


def _torch_cpu_flops(dtype: str) -> float:
    import torch

    a = torch.ones((SIDE, SIDE), dtype=getattr(torch, dtype))
    return 2 * SIDE**3 / _fastest(lambda: a @ a)


def _gpu_limit(device: str, dtype: str) -> Limit:
    """Timed by CUDA events. Not measured by this project so far: no GPU was at hand."""
    import torch

    def fastest(work: Callable[[], object]) -> float:
        work()  # the first call picks an algorithm
        taken = []
        for _ in range(PASSES):
            began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            began.record()
            work()
            ended.record()
            ended.synchronize()
            taken.append(began.elapsed_time(ended) / 1e3)  # it counts in milliseconds
        return float(min(taken))

    with torch.cuda.device(device), torch.inference_mode():
        free, _ = torch.cuda.mem_get_info()
        array = torch.ones(min(GPU_ARRAY_BYTES, free // 4) // 4, device=device)
        bandwidth = array.numel() * 4 / fastest(array.sum)
        del array
        a = torch.randn((GPU_SIDE, GPU_SIDE), device=device).to(getattr(torch, dtype))
        flops = 2 * GPU_SIDE**3 / fastest(lambda: a @ a)
    return Limit(device, dtype, bandwidth, flops, f"torch {torch.__version__}")


def measured_here(device: str, dtype: str) -> Limit:
    """In this process. Raises `ImportError` where torch is needed and missing."""
    if device.partition(":")[0] == "cuda":
        return _gpu_limit(device, dtype)
    bandwidth = Reader().bandwidth()
    if dtype not in HALF:
        return Limit("cpu", "float32", bandwidth, cpu_flops(), f"NumPy {np.__version__}")
    import torch

    return Limit("cpu", dtype, bandwidth, _torch_cpu_flops(dtype), f"NumPy {np.__version__}, torch {torch.__version__}")


def arithmetic_of(dtype: str) -> str:
    """The format in which an engine multiplies whose weights have `dtype`: quantised ones are expanded first."""
    return dtype if dtype in HALF else "float32"


async def measure_limit(device: str, dtype: str) -> Limit | None:
    """In a process of its own, whose memory is free again afterwards. `None` for a device that cannot be measured."""
    kind = device.partition(":")[0]
    if kind not in {"cpu", "cuda"}:
        return None
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "bench.roofline.limits", device, arithmetic_of(dtype)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(MEASURING_TIMEOUT):
            output, _ = await process.communicate()
        found: Mapping[str, object] = json.loads(output)
    except (TimeoutError, ValueError):
        return None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return Limit(**found)  # type: ignore[arg-type]  # as this module wrote it


def main() -> None:
    from dataclasses import asdict

    device, dtype = [*sys.argv[1:], *("cpu", "float32")[len(sys.argv) - 1 :]]
    found = measured_here(device, dtype)
    sys.stdout.write(json.dumps(asdict(found)) + "\n")


if __name__ == "__main__":
    main()
