"""The engines by name. Nothing heavy is imported here: an engine's module is imported when it is looked up.

Other packages add engines through the entry-point group `enginebench.engines`; docs/adding-an-engine.md shows how.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from enginebench.settings.schema import Setting, UserMistake, choose_from, from_text, setting, settings_of
from engines.contract.base import Engine


@dataclass(frozen=True, slots=True)
class SharedOptions:
    """The options of every engine."""

    replicas: int = setting(1, "processes, each with the whole model on its own GPU or share of the cores", least=1)
    memory: Literal["check", "ignore"] = setting(
        "check", "check: refuse a model that will not fit into the free memory, before it is loaded"
    )


@dataclass(frozen=True, slots=True)
class CheckedOptions:
    """The options of `-o`, checked. `own` are the engine's own, as text for its process; `parsed`, as values."""

    shared: SharedOptions
    own: Mapping[str, str]
    parsed: Any


ENTRY_POINTS = "enginebench.engines"  # each names an `EngineSpec`
log = logging.getLogger("enginebench.engines")


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """The facts about an engine before it is loaded."""

    target: str  # "module:Class", imported when asked for
    title: str  # at most 33 characters: the list of engines has a line for each
    batching: str
    needs_model: bool = True


ENGINES: dict[str, EngineSpec] = {
    "fake": EngineSpec("engines.fake.engine:FakeEngine", "scripted delays, no model", "continuous", needs_model=False),
    "transformers": EngineSpec("engines.transformers:TransformersEngine", "Transformers, eager; our loop", "none"),
    "transformers-batching": EngineSpec(
        "engines.transformers_batching:TransformersBatchingEngine", "Transformers' own batching", "continuous"
    ),
    "pytorch-baseline": EngineSpec(
        "engines.pytorch_baseline:PytorchBaselineEngine", "unoptimised on purpose: no cache", "none"
    ),
    "torch-jit": EngineSpec(
        "engines.static.ways_to_run:TorchJitEngine", "our decoder, TorchScript trace", "continuous"
    ),
    "torch-compile": EngineSpec(
        "engines.static.ways_to_run:TorchCompileEngine", "our decoder, compiled by Inductor", "continuous"
    ),
    "cuda-graph": EngineSpec("engines.static.ways_to_run:CudaGraphEngine", "our decoder as CUDA graphs", "continuous"),
    "compile-cuda-graph": EngineSpec(
        "engines.static.ways_to_run:CompileCudaGraphEngine", "our decoder compiled and captured", "continuous"
    ),
    "mistralrs": EngineSpec("engines.mistralrs:MistralRsEngine", "mistral.rs, its Python wheel", "continuous"),
    "candle": EngineSpec("engines.rust.engines:CandleEngine", "Candle's models, or our decoder", "none"),
    "burn": EngineSpec("engines.rust.engines:BurnEngine", "our decoder and scheduler on Burn", "continuous"),
    "lmrs": EngineSpec("engines.lmrs.engine:LmrsEngine", "lm.rs, its own program `backend`", "none"),
    "llamacpp": EngineSpec("engines.llamacpp.engine:LlamaCppEngine", "llama.cpp, its own server", "continuous"),
    "openvino": EngineSpec("engines.openvino:OpenVinoEngine", "OpenVINO GenAI's own batching", "continuous"),
    "remote": EngineSpec(
        "engines.remote:RemoteEngine", "any OpenAI-compatible server", "continuous", needs_model=False
    ),
    "sglang": EngineSpec("engines.libraries.sglang:SglangEngine", "SGLang's engine in process", "continuous"),
    "tensorrt-llm": EngineSpec(
        "engines.libraries.tensorrt_llm:TensorRtLlmEngine", "TensorRT-LLM, PyTorch back end", "continuous"
    ),
    "vllm": EngineSpec("engines.libraries.vllm:VllmEngine", "vLLM's AsyncLLM in process", "continuous"),
}


def names() -> list[str]:
    return [*ENGINES, *_installed()]


def spec(name: str) -> EngineSpec:
    """Look an engine up. Raises `UserMistake` with the choices."""
    engine = ENGINES.get(name) or _installed().get(name)
    if engine is None:
        raise UserMistake(f"no engine called `{name}`; {choose_from(name, names())}")
    return engine


@cache
def _installed() -> dict[str, EngineSpec]:
    """Return the engines of other packages. Our names take precedence; a broken engine is left out with a warning."""
    from importlib.metadata import entry_points

    installed: dict[str, EngineSpec] = {}
    for entry in sorted(entry_points(group=ENTRY_POINTS), key=lambda entry: entry.name):
        try:
            brought = entry.load()
            if not isinstance(brought, EngineSpec):
                raise TypeError(f"{entry.value} is not an EngineSpec")
        except Exception as error:  # another package's module may raise anything
            package = entry.dist.name if entry.dist is not None else entry.value
            log.warning("the engine `%s` of %s is left out: %s.", entry.name, package, str(error).rstrip("."))
        else:
            installed.setdefault(entry.name, brought)
    return {name: engine for name, engine in installed.items() if name not in ENGINES}


def engine_class(name: str) -> type[Engine]:
    """Look an engine up. Raises `UserMistake` with the choices."""
    return class_at(spec(name).target)


def class_at(target: str) -> type[Engine]:
    """Import the class named by "module:Class"."""
    module, _, attribute = target.partition(":")
    kind: type[Engine] = getattr(importlib.import_module(module), attribute)
    return kind


def settings(name: str) -> tuple[Setting, ...]:
    """Return the options that `-o` can set for an engine. Raises `UserMistake` with the choices."""
    return (*settings_of(engine_class(name).Options, flags=False), *settings_of(SharedOptions, flags=False))


def check_options(name: str, options: Mapping[str, str]) -> CheckedOptions:
    """Parse the options typed with `-o`. Raises `UserMistake`."""
    shared = {option.name for option in settings_of(SharedOptions)}
    own = {key: text for key, text in options.items() if key not in shared}
    return CheckedOptions(
        from_text(SharedOptions, {key: text for key, text in options.items() if key in shared}),
        own,
        from_text(engine_class(name).Options, own),
    )
