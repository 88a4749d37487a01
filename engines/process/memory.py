"""A model that does not fit into memory is refused before the engine's process starts, with the figures.

enginebench serve --engine transformers --model random:llama-30b
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engines.contract.base import Engine, EngineUnavailable
from engines.machine.memory import free_memory, gpu_memory
from engines.models.formats import BITS
from engines.models.size import MemoryNeed, ModelSize
from settings_schema import settings_of

IGNORE = "-o memory=ignore"
IN_MAIN_MEMORY = ("cpu", "mps", "metal")  # devices that have no memory of their own


def refuse_too_large(
    engine: str, kind: type[Engine], options: Any, size: ModelSize | None, processes: int, gpus: Sequence[str]
) -> None:
    """Raises `EngineUnavailable` where `processes` of this engine, with these options, take more than is free.

    `gpus` are those of one process, as CUDA_VISIBLE_DEVICES names them; all processes share a CPU's memory. What is not
    known (the model's size, the engine's need, a device's memory) is not checked.
    """
    need = None if size is None else kind.memory_need(options, size)
    if need is None:
        return
    if need.device in IN_MAIN_MEMORY:
        who = f"{engine} needs" if processes == 1 else f"{processes} replicas of {engine} need"
        total, free, where = processes * need.total, free_memory(), "of memory"
    else:
        usable = [round(min(one.free, need.gpu_share * one.total)) for one in gpu_memory(_own(need, gpus))]
        if not usable:
            return
        who, where = f"{engine} needs", "of GPU memory" if need.gpus == 1 else f"on each of {need.gpus} GPUs"
        total, free = need.total // need.gpus, min(usable)
    if total > free:
        raise EngineUnavailable(
            f"{need.model} does not fit: {who} at least {_size(total)} {where} ({_parts(need)}), and {_size(free)} can "
            f"be used. {_remedy(need, kind, processes)}"
        )


def _own(need: MemoryNeed, gpus: Sequence[str]) -> Sequence[str]:
    """`cuda:1` is the second of the visible ones."""
    kind, _, number = need.device.partition(":")
    first = int(number) if number.isdigit() else 0
    return gpus[first : first + need.gpus] if kind == "cuda" else ()


def _parts(need: MemoryNeed) -> str:
    parts = [f"{_size(need.weights)} for weights in {need.dtype}"]
    if need.cache:
        parts.append(f"{_size(need.cache)} for keys and values")
    return ", ".join([*parts, f"{_size(need.step)} for a step"])


def _remedy(need: MemoryNeed, kind: type[Engine], processes: int) -> str:
    bits = BITS.get(need.dtype, 0.0)
    formats = next((one.choices for one in settings_of(kind.Options, flags=False) if one.name == "dtype"), ())
    smaller = [format for format in formats if BITS.get(format, bits) < bits]
    ways = ["a smaller model"]
    if smaller:
        ways.append(f"dtype={min(smaller, key=BITS.__getitem__)}")
    if need.cache > need.total / 10 and need.cache_options:
        ways.append(f"less for {' or '.join(f'`{name}`' for name in need.cache_options)}")
    if processes > 1 and need.device in IN_MAIN_MEMORY:
        ways.append("fewer `replicas`")
    listed = " or ".join(filter(None, (", ".join(ways[:-1]), ways[-1])))
    return f"Choose {listed}; {IGNORE} loads it anyway."


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.0f} MB"
