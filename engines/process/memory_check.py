"""The check that a model fits into free memory before it is loaded, and a preset before it is downloaded:

enginebench serve transformers --model random:llama-30b
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from enginebench.settings.schema import settings_of
from engines.contract.base import Engine, Model
from engines.contract.errors import EngineUnavailable
from engines.contract.registry import CheckedOptions, engine_class
from engines.machine.devices import gpus_at
from engines.machine.memory import free_memory, gpu_memory
from engines.models.presets import PRESETS, RANDOM
from engines.models.size import BITS, MemoryNeed, ModelSize
from engines.models.stored import config_of, tensors_of, weight_files

IGNORE = "-o memory=ignore"
IN_MAIN_MEMORY = ("cpu", "mps", "metal")  # devices that use the machine's memory


def check_memory(engine: str, checked: CheckedOptions, size: ModelSize | None, gpus: Sequence[str]) -> None:
    """Raise `EngineUnavailable` if the engine's processes take more memory than is free.

    `gpus` are those of one process, as CUDA_VISIBLE_DEVICES names them; all processes share a CPU's memory. Nothing is
    checked if the model's size, the engine's need or a device's memory is unknown.
    """
    kind, processes = engine_class(engine), checked.shared.replicas
    need = None if size is None else kind.memory_need(checked.parsed, size)
    if need is None or checked.shared.memory == "ignore":
        return
    if need.device in IN_MAIN_MEMORY:
        subject = f"{engine} needs" if processes == 1 else f"{processes} replicas of {engine} need"
        total, free, place = processes * need.total, free_memory(), "of memory"
    else:
        own = gpus_at(need.device, need.gpus, gpus) or ()
        usable = [round(min(memory.free, need.gpu_share * memory.total)) for memory in gpu_memory(own)]
        if not usable:
            return
        subject, place = f"{engine} needs", "of GPU memory" if need.gpus == 1 else f"on each of {need.gpus} GPUs"
        total, free = need.total // need.gpus, min(usable)
    if total > free:
        raise EngineUnavailable(
            f"{need.model} does not fit: {subject} at least {_size(total)} {place} ({_parts(need)}), and {_size(free)} "
            f"can be used. {_remedy(need, kind, processes)}"
        )


def size_of_preset(spec: str) -> ModelSize | None:
    """Return the size of a preset, with or without `random:`; `None` for any other name."""
    preset = PRESETS.get(spec.removeprefix(RANDOM))
    return None if preset is None else ModelSize(spec, preset.parameters, preset.config)


def size_of(model: Model) -> ModelSize | None:
    """Read the size from the headers of the model's files, or from its preset; `None` if neither has it."""
    try:
        config, tensors = config_of(model.folder), tensors_of(model.folder)
    except (OSError, ValueError):  # the engine will report what is wrong with them
        return None
    if not tensors:
        return size_of_preset(model.name) if model.random_weights else None
    quantised = "quantization_config" in config
    return ModelSize(
        model.name,
        sum(prod(tensor.shape) for tensor in tensors.values()),
        config,
        sum(file.stat().st_size for file in weight_files(model.folder)) if quantised else None,
        None if model.gguf is None else model.gguf.stat().st_size,
    )


def _parts(need: MemoryNeed) -> str:
    parts = [f"{_size(need.weights)} for weights in {need.dtype}"]
    if need.cache:
        parts.append(f"{_size(need.cache)} for {need.kept}")
    return ", ".join([*parts, f"{_size(need.step)} for a step"])


def _remedy(need: MemoryNeed, kind: type[Engine], processes: int) -> str:
    bits = BITS.get(need.dtype, 0.0)
    formats = next((option.choices for option in settings_of(kind.Options, flags=False) if option.name == "dtype"), ())
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
