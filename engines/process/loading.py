"""From an engine's name and options to a process that is ready to be started.

What cannot run here is refused before that; so is a model that does not fit into memory, with the figures:

    enginebench serve transformers --model random:llama-30b
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from enginebench.settings.schema import UserMistake, settings_of
from engines.contract.base import Engine, Launch, Model
from engines.contract.errors import EngineUnavailable
from engines.contract.registry import CheckedOptions, check_options, engine_class, names, spec
from engines.machine.devices import free_memory, gpu_memory, gpus_at, visible_gpus
from engines.models.presets import PRESETS, RANDOM
from engines.models.size import BITS, MemoryNeed, ModelSize
from engines.models.stored import config_of, tensors_of, weight_files
from engines.process.child import ChildEngine, Watch
from engines.process.environments import is_foreign, why_not_there

IGNORE = "-o memory=ignore"
IN_MAIN_MEMORY = ("cpu", "mps", "metal")  # devices that have no memory of their own


def check_before_download(name: str, options: Mapping[str, str], model: str | None) -> None:
    """Checks that need no downloaded model: `model` is the name that was given.

    Raises `UserMistake` for a wrong option, and `EngineUnavailable` for a preset that will not fit into the memory.
    """
    checked = check_options(name, options)
    if model is not None and spec(name).needs_model:
        _check_memory(name, checked, size_of_preset(model), visible_gpus())


def refuse_missing(name: str, options: Mapping[str, str]) -> None:
    """Raise `EngineUnavailable` if the engine lacks something here, before a model is fetched for it.

    An option may name another interpreter, which `load_engine` asks.
    """
    if not options and (reason := engine_class(name).why_not_here()) is not None:
        raise EngineUnavailable(f"{name} cannot run here: {reason}")


def load_engine(
    name: str,
    model: Model | None = None,
    options: Mapping[str, str] | None = None,
    watch: Watch | None = None,
    place: Callable[[Launch], Launch] = lambda launch: launch,
    processes: int = 1,
) -> ChildEngine:
    """Return an engine that is ready to be started in a child process of its own, supervised as `watch` says.

    `place` restricts the process to its share of the machine, where it is one of several `processes`. Raises
    `ValueError` for an unknown name or option and `EngineUnavailable` where the engine or the model cannot run here.
    """
    kind = engine_class(name)
    checked = check_options(name, options or {})  # a user's mistake is reported before any process starts
    if checked.shared.replicas != processes:
        raise UserMistake("`replicas` is for `serve` and `run`; here one process is measured.")
    if spec(name).needs_model and model is None:
        raise UserMistake(f"{name} needs a model; `enginebench models` lists what there is.")
    launch = place(kind.launch(checked.parsed, model))
    reason = why_not_there(launch, spec(name).target) if is_foreign(launch) else kind.why_not_here()
    if reason is not None:
        raise EngineUnavailable(f"{name} cannot run here: {reason}")
    if model is not None and spec(name).needs_model:
        _check_memory(name, checked, size_of(model), visible_gpus(launch.environment))
    target = spec(name).target
    gpus = kind.gpus_of(checked.parsed)
    return ChildEngine(name, model, checked.own, launch, watch or Watch(), target, warms_up=kind.warms_up, gpus=gpus)


def own_server(name: str, model: Model, options: Mapping[str, str], host: str, port: int) -> Launch:
    """Return how to start the server that the engine's library brings. Raises as `load_engine` does."""
    kind, checked = engine_class(name), check_options(name, options)
    if kind.own_server is Engine.own_server:
        bring = [other for other in names() if engine_class(other).own_server is not Engine.own_server]
        raise UserMistake(f"{name} has no server of its own that can be started here; these do: {', '.join(bring)}.")
    _check_memory(name, checked, size_of(model), visible_gpus())
    launch = kind(model, checked.parsed).own_server(host, port)
    if launch is None:
        raise UserMistake(f"{name} has no server of its own that can be started here.")
    return launch


def _check_memory(name: str, checked: CheckedOptions, size: ModelSize | None, gpus: Sequence[str]) -> None:
    if checked.shared.memory == "check":
        refuse_too_large(name, engine_class(name), checked.parsed, size, checked.shared.replicas, gpus)


def size_of_preset(spec: str) -> ModelSize | None:
    """Return the size of a preset, with or without `random:`; `None` for any other name."""
    preset = PRESETS.get(spec.removeprefix(RANDOM))
    return None if preset is None else ModelSize(spec, preset.parameters, preset.config)


def size_of(model: Model) -> ModelSize | None:
    """Read the size from the headers of its files, or from its preset; `None` if neither has it."""
    try:
        config, tensors = config_of(model.folder), tensors_of(model.folder)
    except (OSError, ValueError):  # the engine says what is wrong with them
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


def refuse_too_large(
    engine: str, kind: type[Engine], options: Any, size: ModelSize | None, processes: int, gpus: Sequence[str]
) -> None:
    """Raises `EngineUnavailable` if `processes` of this engine, with these options, take more than is free.

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
        own = gpus_at(need.device, need.gpus, gpus) or ()
        usable = [round(min(memory.free, need.gpu_share * memory.total)) for memory in gpu_memory(own)]
        if not usable:
            return
        who, where = f"{engine} needs", "of GPU memory" if need.gpus == 1 else f"on each of {need.gpus} GPUs"
        total, free = need.total // need.gpus, min(usable)
    if total > free:
        raise EngineUnavailable(
            f"{need.model} does not fit: {who} at least {_size(total)} {where} ({_parts(need)}), and {_size(free)} can "
            f"be used. {_remedy(need, kind, processes)}"
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
