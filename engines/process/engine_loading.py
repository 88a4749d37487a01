"""Prepare an engine, by its name and options, to be started in a process; refuse engines that cannot run here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from enginebench.settings.schema import UserMistake
from engines.contract.base import Engine, Launch, Model
from engines.contract.errors import EngineUnavailable
from engines.contract.registry import check_options, engine_class, names, spec
from engines.machine.devices import visible_gpus
from engines.process.launching import is_foreign, why_not_there
from engines.process.memory_check import check_memory, size_of, size_of_preset
from engines.process.supervisor import ChildEngine, Watch


def check_before_download(name: str, options: Mapping[str, str], model: str | None) -> None:
    """Raise `UserMistake` for a wrong option, and `EngineUnavailable` for a preset that does not fit into memory.

    `model` is the name that the user gave.
    """
    checked = check_options(name, options)
    if model is not None and spec(name).needs_model:
        check_memory(name, checked, size_of_preset(model), visible_gpus())


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
    """Return an engine that is ready to be started in its own child process, supervised as `watch` says.

    `place` restricts the process to its share of the machine, if it is one of several `processes`. Raises `ValueError`
    for an unknown name or option and `EngineUnavailable` if the engine or the model cannot run here.
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
        check_memory(name, checked, size_of(model), visible_gpus(launch.environment))
    target = spec(name).target
    gpus = kind.gpus_of(checked.parsed)
    return ChildEngine(name, model, checked.own, launch, watch or Watch(), target, warms_up=kind.warms_up, gpus=gpus)


def own_server(name: str, model: Model, options: Mapping[str, str], host: str, port: int) -> Launch:
    """Return how to start the library's own server. Raises as `load_engine` does."""
    kind, checked = engine_class(name), check_options(name, options)
    if kind.own_server is Engine.own_server:
        bring = [engine for engine in names() if engine_class(engine).own_server is not Engine.own_server]
        raise UserMistake(f"{name} has no server of its own that can be started here; these do: {', '.join(bring)}.")
    check_memory(name, checked, size_of(model), visible_gpus())
    launch = kind(model, checked.parsed).own_server(host, port)
    if launch is None:
        raise UserMistake(f"{name} has no server of its own that can be started here.")
    return launch
