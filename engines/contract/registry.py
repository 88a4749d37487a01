"""The engines by name. Nothing heavy is imported here: an engine's module is imported when it is looked up.

Other packages add engines through the entry-point group `enginebench.engines`; docs/adding-an-engine.md shows how.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from engines.contract.base import Engine, EngineUnavailable, Launch, Model
from settings_schema import Setting, from_text, setting, settings_of

if TYPE_CHECKING:
    from engines.process.child import ChildEngine
    from engines.process.watch import Watch


@dataclass(frozen=True, slots=True)
class ReplicaOptions:
    """What may be set of every engine."""

    replicas: int = setting(
        1, "processes with the whole model each, on a GPU or a share of the cores of their own", least=1
    )


ENTRY_POINTS = "enginebench.engines"  # each names an `EngineSpec`
log = logging.getLogger("enginebench.engines")


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """What is known about an engine before it is loaded."""

    target: str  # "module:Class", imported when asked for
    title: str  # what it is, for people
    language: str
    batching: str
    needs_model: bool = True


ENGINES: dict[str, EngineSpec] = {
    "fake": EngineSpec(
        "engines.fake.engine:FakeEngine",
        "scripted delays, no model",
        "python",
        "continuous",
        needs_model=False,
    ),
    "transformers": EngineSpec(
        "engines.transformers:TransformersEngine", "Hugging Face Transformers, one request at a time", "python", "none"
    ),
    "transformers-batching": EngineSpec(
        "engines.transformers_batching:TransformersBatchingEngine",
        "Hugging Face Transformers with its own continuous batching",
        "python",
        "continuous",
    ),
    "pytorch-baseline": EngineSpec(
        "engines.pytorch_baseline:PytorchBaselineEngine",
        "intentionally unoptimised: no cache, no batching, separate operations",
        "python",
        "none",
    ),
    "torch-jit": EngineSpec(
        "engines.static.torch_jit:TorchJitEngine",
        "our static decoder as a TorchScript trace, optimised for inference",
        "python",
        "continuous",
    ),
    "torch-compile": EngineSpec(
        "engines.static.torch_compile:TorchCompileEngine",
        "our static decoder compiled by Inductor, just in time or ahead of time",
        "python",
        "continuous",
    ),
    "cuda-graph": EngineSpec(
        "engines.static.cuda_graph:CudaGraphEngine",
        "our static decoder, its decode step captured as a CUDA graph per batch size",
        "python",
        "continuous",
    ),
    "compile-cuda-graph": EngineSpec(
        "engines.static.cuda_graph:CompileCudaGraphEngine",
        "our static decoder compiled by Inductor and captured as CUDA graphs",
        "python",
        "continuous",
    ),
    "mistralrs": EngineSpec(
        "engines.mistralrs:MistralRsEngine", "mistral.rs, through its Python wheel", "rust", "continuous"
    ),
    "candle": EngineSpec(
        "engines.candle:CandleEngine",
        "candle-transformers' models; with concurrency above 1 our decoder and scheduler on Candle",
        "rust",
        "none",
    ),
    "burn": EngineSpec(
        "engines.burn:BurnEngine", "our decoder and scheduler on Burn's operations", "rust", "continuous"
    ),
    "lmrs": EngineSpec("engines.lmrs.engine:LmrsEngine", "lm.rs, through its own `backend` program", "rust", "none"),
    "llamacpp": EngineSpec(
        "engines.llamacpp:LlamaCppEngine", "llama.cpp, through its own `llama-server`", "c++", "continuous"
    ),
    "openvino": EngineSpec(
        "engines.openvino:OpenVinoEngine", "OpenVINO GenAI, with its continuous batching", "c++", "continuous"
    ),
    "remote": EngineSpec(
        "engines.remote:RemoteEngine",
        "any OpenAI-compatible server, behind ours",
        "any",
        "continuous",
        needs_model=False,
    ),
    "sglang": EngineSpec("engines.sglang:SglangEngine", "SGLang's engine in process", "python", "continuous"),
    "tensorrt-llm": EngineSpec(
        "engines.tensorrt_llm:TensorRtLlmEngine", "TensorRT-LLM, through its class LLM", "c++", "continuous"
    ),
    "vllm": EngineSpec("engines.vllm:VllmEngine", "vLLM in process (AsyncLLM)", "python", "continuous"),
}


def names() -> list[str]:
    return [*ENGINES, *_installed()]


def spec(name: str) -> EngineSpec:
    """Raises `ValueError` with the choices."""
    found = ENGINES.get(name) or _installed().get(name)
    if found is None:
        raise ValueError(f"no engine called `{name}`; choose from {', '.join(names())}.")
    return found


@cache
def _installed() -> dict[str, EngineSpec]:
    """Engines of other packages. Our own names take precedence; a broken one is left out with a warning."""
    from importlib.metadata import entry_points

    found: dict[str, EngineSpec] = {}
    for entry in sorted(entry_points(group=ENTRY_POINTS), key=lambda entry: entry.name):
        try:
            brought = entry.load()
            if not isinstance(brought, EngineSpec):
                raise TypeError(f"{entry.value} is not an EngineSpec")
        except Exception as error:  # another package's module may raise anything
            package = entry.dist.name if entry.dist is not None else entry.value
            log.warning("the engine `%s` of %s is left out: %s.", entry.name, package, str(error).rstrip("."))
        else:
            found.setdefault(entry.name, brought)
    return {name: one for name, one in found.items() if name not in ENGINES}


def engine_class(name: str) -> type[Engine]:
    """Raises `ValueError` with the choices."""
    module, _, attribute = spec(name).target.partition(":")
    kind: type[Engine] = getattr(importlib.import_module(module), attribute)
    return kind


def settings(name: str) -> tuple[Setting, ...]:
    """What may be set of an engine with `-o`. Raises `ValueError` with the choices."""
    return (*settings_of(engine_class(name).Options, flags=False), *settings_of(ReplicaOptions, flags=False))


def check_options(name: str, options: Mapping[str, str]) -> tuple[int, dict[str, str], Any]:
    """The number of replicas, the engine's own options, and these parsed. Raises `ValueError` with a sentence."""
    shared = {one.name for one in settings_of(ReplicaOptions)}
    replicas = from_text(ReplicaOptions, {key: text for key, text in options.items() if key in shared}).replicas
    own = {key: text for key, text in options.items() if key not in shared}
    return replicas, own, from_text(engine_class(name).Options, own)


def load_engine(
    name: str,
    model: Model | None = None,
    options: Mapping[str, str] | None = None,
    watch: Watch | None = None,
    place: Callable[[Launch], Launch] = lambda launch: launch,
) -> ChildEngine:
    """An engine that is ready to be started in a child process of its own, supervised as `watch` says.

    `place` restricts the process to its share of the machine. Raises `ValueError` for an unknown name or option and
    `EngineUnavailable` where the engine cannot run here.
    """
    from engines.process.child import ChildEngine
    from engines.process.environments import ask, is_foreign
    from engines.process.watch import Watch

    kind = engine_class(name)
    parsed = from_text(kind.Options, options or {})  # a user's mistake is reported before any process starts
    if spec(name).needs_model and model is None:
        raise ValueError(f"{name} needs a model; `enginebench models` lists what there is.")
    launch = place(kind.launch(parsed, model))
    reason = ask(launch, spec(name).target)["why_not_here"] if is_foreign(launch) else kind.why_not_here()
    if reason is not None:
        raise EngineUnavailable(f"{name} cannot run here: {reason}")
    return ChildEngine(name, model, options or {}, launch, watch or Watch(), spec(name).target)
