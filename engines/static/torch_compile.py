"""torch.compile: for each shape, a layer and the head are compiled by Inductor; the one layer serves all of them.

A layer gets its weights and its part of the cache as inputs, so its compilation takes some seconds instead of
a minute for all of them unrolled. What is compiled is kept in the user's cache. With `aot=yes` both are
exported and compiled ahead of time to packages (AOTInductor), which are called without the checks of `torch.compile`.

    enginebench serve --engine torch-compile -o aot=yes
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engines.contract.base import EngineUnavailable
from engines.models.cache import built_once, cache_folder
from engines.static.engine import StaticEngine, StaticOptions
from settings_schema import setting

if TYPE_CHECKING:
    import torch

    from engines.static.buckets import StepShape
    from engines.static.decoder import RunStep
    from engines.static.step import RunHead, RunLayer, Step

SHAPES_KEPT = 256  # compilations of one function that torch.compile keeps; it stops at 8 by default


@dataclass(frozen=True, slots=True)
class TorchCompileOptions(StaticOptions):
    aot: bool = setting(False, "compile ahead of time to AOTInductor packages, which are kept in the user's cache")


class TorchCompileEngine(StaticEngine):
    Options = TorchCompileOptions
    options: TorchCompileOptions
    name = "torch-compile"

    @classmethod
    def why_not_here(cls) -> str | None:
        return StaticEngine.why_not_here() or missing_compiler()

    def before_torch(self) -> None:
        keep_compilations()

    def prepare(self, step: Step, shape: StepShape, example: tuple[torch.Tensor, ...]) -> RunStep:
        return compiled_step(step, example, self.options.aot)


def keep_compilations() -> None:
    """In the user's cache. To be called before torch is imported."""
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_folder() / "inductor"))


def missing_compiler() -> str | None:
    """One sentence where Inductor finds no compiler for what it writes."""
    if any(shutil.which(name) for name in (os.environ.get("CXX", ""), "g++", "clang++")):
        return None
    return "Inductor needs a C++ compiler, and there is neither g++ nor clang++; on Debian: apt-get install g++"


def compiled_step(step: Step, example: tuple[torch.Tensor, ...], ahead_of_time: bool = False) -> Step:
    """The step with compiled parts. Raises `EngineUnavailable`, in one sentence, where that fails."""
    import torch

    from engines.static.step import Head, Layer, Step

    torch._dynamo.config.recompile_limit = SHAPES_KEPT
    torch._dynamo.config.accumulated_recompile_limit = SHAPES_KEPT
    just_in_time: Any = torch.compile
    try:
        if ahead_of_time:
            layer, head = _packaged_layer(step, example), _packaged_head(step, example)
        else:
            layer, head = (just_in_time(part(step.shape), fullgraph=True, dynamic=False) for part in (Layer, Head))
        compiled = Step(step.shape, step.weights, layer, head)
        compiled(*example)  # `torch.compile` compiles at the first call
        return compiled
    except Exception as error:
        first = next(iter(str(error).strip().splitlines()), "")
        raise EngineUnavailable(f"Inductor could not compile a step ({type(error).__name__}: {first})") from error


def _packaged_layer(step: Step, example: tuple[torch.Tensor, ...]) -> RunLayer:
    import torch

    from engines.static.step import Layer

    ids, starts, _, keys, values, *_ = example
    place = step.place(ids, starts, keys.shape[1])
    weights = step.weights.layers[0]
    x = torch.zeros(*ids.shape, weights.attention_norm.shape[0], dtype=keys.dtype, device=keys.device)
    flat = _flat(Layer(step.shape), [name for name, one in weights._asdict().items() if one is not None])
    package = _package(flat, (x, keys, values, *place, *_given(weights)), step)
    return lambda x, place, keys, values, weights: package(x, keys, values, *place, *_given(weights))


def _packaged_head(step: Step, example: tuple[torch.Tensor, ...]) -> RunHead:
    from engines.static.step import Head

    x = step.weights.norm.new_zeros(len(example[0]), len(step.weights.norm))
    return _package(Head(step.shape), (x, step.weights.norm, step.weights.head), step)


def _package(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], step: Step) -> Callable[..., torch.Tensor]:
    """From the user's cache, exported and compiled where it is not there yet."""
    import torch

    def build(folder: Path) -> None:
        exported = torch.export.export(module, inputs)
        torch._inductor.aoti_compile_and_package(exported, package_path=str(folder / "part.pt2"))

    folder = built_once(cache_folder() / "aot" / _identity(module, step, inputs), build)
    package: Callable[..., torch.Tensor] = torch._inductor.aoti_load_package(str(folder / "part.pt2"))
    return package


def _given(weights: Any) -> list[torch.Tensor]:
    return [one for one in weights if one is not None]


def _flat(layer: Any, names: list[str]) -> torch.nn.Module:
    """The layer with plain tensors as arguments, which is all that a package takes."""
    import torch

    from engines.static.step import Place
    from engines.static.weights import LayerWeights

    absent: dict[str, Any] = dict.fromkeys(LayerWeights._fields)

    class Flat(torch.nn.Module):
        def forward(self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, *rest: torch.Tensor) -> Any:
            places = len(Place._fields)
            given = absent | dict(zip(names, rest[places:], strict=True))
            return layer(x, Place(*rest[:places]), keys, values, LayerWeights(**given))

    return Flat()


def _identity(module: torch.nn.Module, step: Step, inputs: tuple[torch.Tensor, ...]) -> str:
    """Changes with everything that a package is compiled from."""
    import inspect

    import torch

    from engines.static import step as source

    tensors = [(tuple(one.shape), one.stride(), str(one.dtype), str(one.device)) for one in inputs]
    hardware = torch.backends.cpu.get_cpu_capability()
    part = type(module).__name__
    facts = (part, torch.__version__, hardware, astuple(step.shape), tensors, inspect.getsource(source))
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
