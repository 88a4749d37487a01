"""From an engine's name and options to a process that is ready to be started; what cannot run here is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from engines.contract.base import EngineUnavailable, Launch, Model
from engines.contract.registry import GivenOptions, check_options, engine_class, spec
from engines.machine.devices import visible_gpus
from engines.models.presets import PRESETS, RANDOM
from engines.models.size import ModelSize
from engines.models.stored import config_of, tensors_of, weight_files
from engines.process.child import ChildEngine
from engines.process.environments import is_foreign, why_not_there
from engines.process.memory import refuse_too_large
from engines.process.watch import Watch


def check_before_download(name: str, options: Mapping[str, str], model: str | None) -> None:
    """Checks that need no downloaded model: `model` is the name that was given.

    Raises `ValueError` for a wrong option, and `EngineUnavailable` for a preset that will not fit into the memory.
    """
    given = check_options(name, options)
    if model is not None and spec(name).needs_model:
        _check_memory(name, given, size_of_preset(model), visible_gpus())


def load_engine(
    name: str,
    model: Model | None = None,
    options: Mapping[str, str] | None = None,
    watch: Watch | None = None,
    place: Callable[[Launch], Launch] = lambda launch: launch,
    processes: int = 1,
) -> ChildEngine:
    """An engine that is ready to be started in a child process of its own, supervised as `watch` says.

    `place` restricts the process to its share of the machine, where it is one of several `processes`. Raises
    `ValueError` for an unknown name or option and `EngineUnavailable` where the engine or the model cannot run here.
    """
    kind = engine_class(name)
    given = check_options(name, options or {})  # a user's mistake is reported before any process starts
    if given.shared.replicas != processes:
        raise ValueError("`replicas` is for `serve` and `run`; here one process is measured.")
    if spec(name).needs_model and model is None:
        raise ValueError(f"{name} needs a model; `enginebench models` lists what there is.")
    launch = place(kind.launch(given.parsed, model))
    reason = why_not_there(launch, spec(name).target) if is_foreign(launch) else kind.why_not_here()
    if reason is not None:
        raise EngineUnavailable(f"{name} cannot run here: {reason}")
    if model is not None and spec(name).needs_model:
        _check_memory(name, given, size_of(model), visible_gpus(launch.environment))
    return ChildEngine(name, model, given.own, launch, watch or Watch(), spec(name).target)


def _check_memory(name: str, given: GivenOptions, size: ModelSize | None, gpus: Sequence[str]) -> None:
    if given.shared.memory == "check":
        refuse_too_large(name, engine_class(name), given.parsed, size, given.shared.replicas, gpus)


def size_of_preset(spec: str) -> ModelSize | None:
    """From a preset's name, with or without `random:`; `None` for any other name."""
    preset = PRESETS.get(spec.removeprefix(RANDOM))
    return None if preset is None else ModelSize(spec, preset.parameters, preset.config)


def size_of(model: Model) -> ModelSize | None:
    """From the headers of its files, or from its preset; `None` where neither has it."""
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
