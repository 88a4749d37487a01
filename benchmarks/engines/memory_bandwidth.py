"""How fast this machine reads memory with all its cores, and what that allows a decoder.

One user's answer reads every weight once per token, so bytes of weights ÷ bandwidth is the least time that a token can
take, whatever the engine (the memory side of the roofline, Williams et al. 2009).

    python -m benchmarks.engines.memory_bandwidth
"""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from math import prod
from pathlib import Path

import numpy as np

ARRAY_BYTES = 1 << 30  # far above any L3 cache
PASSES = 6
BITS = {"float32": 32.0, "q8_0": 8.5, "q4_0": 4.5}  # per weight; a block of 32 has a 16-bit scale


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Reader:
    """An array and a thread per core to read it. Build it once: filling a gigabyte takes longer than reading it."""

    def __init__(self) -> None:
        self._parts = np.array_split(np.ones(ARRAY_BYTES // 8, np.int64), cores())

    def bandwidth(self) -> float:
        """Bytes per second: the fastest of some passes, because a limit is what cannot be passed."""
        with ThreadPoolExecutor(len(self._parts)) as threads:
            return max(self._pass(threads) for _ in range(PASSES))

    def _pass(self, threads: ThreadPoolExecutor) -> float:
        started = time.perf_counter()
        # The cheapest thing to do with a word: numpy needs no more than the memory's time for it.
        list(threads.map(np.bitwise_or.reduce, self._parts))
        return ARRAY_BYTES / (time.perf_counter() - started)


def bytes_per_token(folder: Path, dtype: str) -> float:
    """What one token reads of the model in `folder` whose matrices are kept as `dtype`; all else has 32 bits.

    An embedding of its own is left out, because a token reads one row of it; one that is also the head counts.
    """
    shapes = _shapes(folder)
    if "lm_head.weight" in shapes and not json.loads((folder / "config.json").read_text()).get("tie_word_embeddings"):
        shapes.pop("model.embed_tokens.weight", None)
    return sum(prod(shape) * (BITS[dtype] if len(shape) > 1 else 32) / 8 for shape in shapes.values())


def _shapes(folder: Path) -> dict[str, list[int]]:
    from safetensors import safe_open

    shapes: dict[str, list[int]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "np") as file:
            shapes |= {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
    return shapes


def main() -> None:
    found = Reader().bandwidth()
    print(f"{cores()} cores read {found / 1e9:.1f} GB/s")


if __name__ == "__main__":
    main()
