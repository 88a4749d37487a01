"""What the engines on PyTorch share: their common options, the device, the number format, and OpenMP's settings."""

from __future__ import annotations

import os
import sysconfig
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from engines.contract.base import Engine, EngineInfo, EngineStats, Feature, Model
from engines.contract.errors import EngineUnavailable
from engines.machine.cuda import machine, torch_in
from engines.machine.devices import visible_gpus
from engines.models.size import MemoryNeed, ModelSize
from engines.text.detokenize import tokenizer_of
from settings.schema import setting

if TYPE_CHECKING:
    import torch

PACKAGES = ("torch", "transformers", "safetensors", "tokenizers")
LIBRARIES = ("torch", "transformers", "tokenizers")  # whose versions an engine reports
NATIVE_BF16 = ("avx512_bf16", "amx_bf16", " bf16 ")  # as Linux names it on x86 and on Arm


@dataclass(frozen=True, slots=True)
class TorchOptions:
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = setting(
        "auto", "auto: float16 on a GPU, bfloat16 on a CPU that has it in hardware, else float32"
    )
    device: str = setting("auto", "auto, cpu, cuda, cuda:1 …")
    threads: int | None = setting(None, "CPU threads (none: torch decides)", least=1)


class OnTorch(Engine):
    """What engines on PyTorch have in common. They go by the version of `library`."""

    cuda_by = "torch"
    name: ClassVar[str]
    library: ClassVar[str] = "torch"
    _device: Any  # of torch
    _context_length: int
    features: ClassVar[tuple[Feature, ...]] = ("seed", "stop", "logprobs", "ignore_eos", "min_tokens")

    @classmethod
    def why_not_here(cls) -> str | None:
        return missing_packages()

    @classmethod
    def memory_need(cls, options: Any, size: ModelSize) -> MemoryNeed:
        device = expected_device(options.device)
        return size.need(dtype_name(options.dtype, device), device=device)

    @classmethod
    def version_here(cls) -> str | None:
        return version(cls.library) if missing_packages() is None else None

    def open_device(self) -> Model:
        """Set torch's threads and device. Raises `EngineUnavailable` for a missing device."""
        import torch

        assert self.model is not None
        if self.options.threads is not None:
            torch.set_num_threads(self.options.threads)
        self._device = chosen_device(self.options.device)
        return self.model

    def open_tokenizer(self) -> None:
        """After the network, which says in a sentence what is wrong with a folder."""
        assert self.model is not None
        self._tokenizer = tokenizer_of(self.model.folder)

    def info(self, dtype: str, concurrency: int | None = None, **options: Any) -> EngineInfo:
        """`concurrency`: requests in one batch; none: one after the other. `options` as they came out."""
        assert self.model is not None
        return EngineInfo(
            name=self.name,
            version=version(self.library),
            language="python",
            model=self.model.name,
            dtype=dtype,
            device=str(self._device),
            batching="none" if concurrency is None else "continuous",
            max_concurrency=concurrency or 1,
            context_length=self._context_length,
            features=self.features,
            options=asdict(self.options) | options,
            libraries={name: version(name) for name in LIBRARIES},
        )

    def stats(self) -> EngineStats:
        return EngineStats(device_memory_bytes=device_memory(self._device))


def missing_packages() -> str | None:
    """One sentence where a package is missing that all engines on PyTorch need."""
    if missing := [name for name in PACKAGES if find_spec(name) is None]:
        return f"it needs {', '.join(missing)}; install with: pip install 'enginebench[transformers]'"
    return None


def missing_gpu() -> str | None:
    """One sentence where there is no NVIDIA GPU. The driver is asked, because importing torch takes seconds."""
    return None if machine() is not None else "it needs an NVIDIA GPU and its driver, and there is none."


def limit_spinning() -> None:
    """To be called before torch is imported.

    OpenMP's workers spin while they wait for each other, by default for milliseconds. On cores shared with a server and
    a load generator that makes every token ten times slower; with no spin at all each is a third slower. A short one
    costs nothing either way.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")


def chosen_device(wanted: str) -> torch.device:
    """Raises `EngineUnavailable` where it does not exist."""
    import torch

    if wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(wanted)
    except RuntimeError as error:
        raise EngineUnavailable(f"there is no device `{wanted}`; use cpu, cuda or cuda:<number>.") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise EngineUnavailable(f"torch finds {torch.cuda.device_count()} CUDA devices, so not `{wanted}`; use cpu.")
    return device


def expected_device(wanted: str) -> str:
    """What `chosen_device` will choose, without importing torch."""
    if wanted != "auto":
        return wanted
    if not visible_gpus():
        return "cpu"
    build = torch_in(Path(sysconfig.get_path("purelib")))
    return "cpu" if build is not None and build.cuda is None else "cuda"


def chosen_dtype(wanted: str, device: torch.device) -> torch.dtype:
    import torch

    dtype: torch.dtype = getattr(torch, dtype_name(wanted, device.type))
    return dtype


def dtype_name(wanted: str, device: str) -> str:
    if wanted != "auto":
        return wanted
    if device != "cpu":
        return "float16"
    return "bfloat16" if _cpu_computes_bf16() else "float32"


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def device_memory(device: torch.device) -> int | None:
    """Bytes that torch has reserved on a GPU; `None` elsewhere."""
    import torch

    return torch.cuda.memory_reserved(device) if device.type == "cuda" else None


def _cpu_computes_bf16() -> bool:
    """Whether the CPU has bfloat16 instructions; without them it is slower than float32."""
    try:
        with open("/proc/cpuinfo") as cpuinfo:
            flags = next(line for line in cpuinfo if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        return False
    return any(name in flags for name in NATIVE_BF16)
