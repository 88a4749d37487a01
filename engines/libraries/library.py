"""The common part of vLLM, SGLang and TensorRT-LLM: a library that runs in process, and its settings."""

from __future__ import annotations

import json
import os
import sys
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any, ClassVar, Literal

from enginebench.settings.schema import setting
from engines.contract.base import EngineInfo, Feature, Launch, Model
from engines.contract.errors import EngineUnavailable, first_line
from engines.machine.devices import automatic_dtype
from engines.models.fetch import context_length
from engines.models.size import MemoryNeed, ModelSize, quantised_before, quantised_format
from engines.models.stored import config_of
from engines.process.environments import InstalledEngine


def drop_none(**values: Any) -> dict[str, Any]:
    """Drop the values that are `None`, which leaves them to the library."""
    return {name: value for name, value in values.items() if value is not None}


def flags(arguments: Mapping[str, Any]) -> Iterator[str]:
    """Yield a library's keyword arguments as flags of its server's command line."""
    for name, value in arguments.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            yield f"--{flag}" if value else f"--no-{flag}"
        else:
            yield f"--{flag}"
            yield json.dumps(value) if isinstance(value, dict) else str(value)


def none_if_one(gpus: int) -> int | None:
    """Return `None` for one GPU, which leaves nothing to share."""
    return gpus if gpus > 1 else None


@dataclass(frozen=True, slots=True)
class LibraryOptions:
    concurrency: int = setting(256, "requests that run in one batch", least=1, tune="64,128,256,512")
    context: int | None = setting(None, "maximum tokens of prompt plus answer (none: the model's limit)", least=1)
    tensor_parallel: int = setting(1, "GPUs (vLLM on a CPU: groups of cores) for tensor parallelism", least=1)
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = setting(
        "auto",
        "number format of weights and cache. auto: bfloat16 (float16 on GPUs below compute capability 8.0); weights "
        "that are already quantised stay as they are",
    )
    prefix_cache: bool = setting(False, "reuse the keys and values of shared prompt prefixes")
    speculative_tokens: int = setting(0, "tokens drafted per step (0: no speculative decoding)", least=0)
    draft_model: str | None = setting(
        None, "folder of the draft model (none: n-grams of the text so far)", read=os.path.expanduser
    )
    eager: bool = setting(False, "no compilation and no CUDA graphs: loads faster, runs slower")
    python: str | None = setting(None, "interpreter that has the library (none: the one of `engines install`)")


@dataclass(frozen=True, slots=True)
class ContextParallelOptions(LibraryOptions):
    """Options for a sequence on several GPUs, as vLLM and SGLang have them; see ring attention (Liu et al. 2023)."""

    decode_context_parallel: int = setting(
        1, "how many `tensor_parallel` GPUs share the keys and values of each sequence", least=1
    )
    prefill_context_parallel: int = setting(1, "GPUs that share the tokens of each prompt", least=1)


class Library(InstalledEngine):
    """`title` is the library's name for people; its package is the first of its environment."""

    loads_on = "main"
    title: ClassVar[str]
    features: tuple[Feature, ...] = ("stop", "ignore_eos", "min_tokens")
    library: Any  # the result of `start`

    @classmethod
    def device_of(cls, options: Any) -> str:
        return cls.environment.device

    @classmethod
    def gpus_of(cls, options: Any) -> int:
        return int(options.tensor_parallel)

    @classmethod
    def memory_need(cls, options: Any, size: ModelSize) -> MemoryNeed:
        device = cls.device_of(options)
        dtype = quantised_format(getattr(options, "quantization", None), cls.floats(options, device))
        return size.need(dtype, device=device, gpus=cls.gpus_of(options))

    @classmethod
    def floats(cls, options: Any, device: str) -> str:
        return automatic_dtype(device, "bfloat16") if options.dtype == "auto" else str(options.dtype)

    def dtype_of(self, model: Model) -> str:
        """Return the number format to ask the library for; quantised weights keep their own."""
        quantised = self.quantised(model) is not None
        return str(self.options.dtype) if quantised else self.floats(self.options, self.device_of(self.options))

    def quantised(self, model: Model) -> str | None:
        """Return the format of weights that the library quantises while loading, or that are already quantised."""
        return getattr(self.options, "quantization", None) or quantised_before(config_of(model.folder))

    @abstractmethod
    def arguments(self, model: Model) -> dict[str, Any]:
        """Return the arguments of the library; it chooses all others."""

    @abstractmethod
    def start(self, model: Model) -> Any:
        """Import the library and load the model. May raise any error of the library."""

    async def load(self) -> EngineInfo:  # type: ignore[override]  # on the main thread it may be asynchronous
        assert self.model is not None
        try:
            self.library = self.start(self.model)
        except ImportError as error:
            raise EngineUnavailable(f"{self.title} cannot be imported here: {error}.") from error
        except Exception as error:  # may be of any type; the library's processes log the cause
            raise EngineUnavailable(f"{self.title} could not load {self.model.name}: {first_line(error)}") from error
        self.context_length = self.options.context or context_length(self.model.folder)
        return self.info()

    @property
    def package(self) -> str:
        """Return the library's installed distribution."""
        return self.environment.package

    def info(self) -> EngineInfo:
        assert self.model is not None
        return self.describe(
            version(self.package),
            self.quantised(self.model) or self.dtype_of(self.model),
            self.device_of(self.options),
            self.context_length,
            self.options.concurrency,
            (self.package, "torch", "transformers"),
        )

    server_module: ClassVar[str | None] = None  # the library's own server, which takes `arguments` as flags

    def own_server(self, host: str, port: int) -> Launch | None:
        if self.server_module is None or self.model is None:
            return None
        launch = self.launch(self.options, self.model)
        words = (*flags(self.server_arguments(self.model)), "--host", host, "--port", str(port))
        command = (launch.python or sys.executable, "-m", self.server_module, *words)
        return replace(launch, command=command, environment={**launch.environment, **self.variables()})

    def server_arguments(self, model: Model) -> dict[str, Any]:
        """Return the `arguments` of its server, including those that only a server has."""
        return self.arguments(model)

    def variables(self) -> dict[str, str]:
        """Return the environment variables that the library reads at import."""
        return {}

    def close(self) -> None:
        self.library.shutdown()
