"""Shared by the engines on PyTorch: common options, the device, the number format, and OpenMP's settings.

python -m engines.pytorch.device     # what this torch was built with, and why it cannot use this machine's GPU
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from enginebench.settings.schema import setting
from engines.contract.base import Engine, EngineInfo, EngineStats, Feature, Launch, Model
from engines.contract.errors import EngineUnavailable, first_line
from engines.machine.devices import amd_gpus, automatic_dtype, gpu_without_driver, visible_gpus
from engines.machine.extras import install_command
from engines.models.fetch import context_length
from engines.models.size import MemoryNeed, ModelSize
from engines.models.stored import end_ids
from engines.pytorch.compiling import compilations_folder
from engines.text.detokenize import tokenizer_of

if TYPE_CHECKING:
    import torch

PACKAGES = ("torch", "transformers", "safetensors", "tokenizers")
LIBRARIES = ("torch", "transformers", "tokenizers")  # whose versions an engine reports
# OpenMP's workers spin while they wait for each other, by default for milliseconds. On cores shared with a server and a
# load generator that makes every token ten times slower; without any spinning, each is a third slower.
SPINS = "10000"
NATIVE_BF16 = ("avx512_bf16", "amx_bf16", " bf16 ")  # as Linux names it on x86 and on Arm


DEVICE = "auto, cpu, cuda, cuda:1 … (AMD's GPUs too), mps; auto: the GPU if the driver reports one"


@dataclass(frozen=True, slots=True)
class TorchOptions:
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = setting(
        "auto",
        "auto: bfloat16 on a GPU (float16 below compute capability 8.0) and on a CPU that has it in hardware, "
        "else float32",
    )
    device: str = setting("auto", DEVICE)
    threads: int | None = setting(None, "CPU threads (none: torch decides)", least=1)


class OnTorch(Engine):
    """An engine on PyTorch. Its version is that of `library`."""

    cuda_by = "torch"
    library: ClassVar[str] = "torch"
    _device: Any  # a `torch.device`
    _context_length: int
    features: tuple[Feature, ...] = ("seed", "stop", "logprobs", "ignore_eos", "min_tokens", "forced")

    @classmethod
    def why_not_here(cls) -> str | None:
        return missing_packages()

    @classmethod
    def device_of(cls, options: Any) -> str:
        return expected_device(options.device)

    @classmethod
    def memory_need(cls, options: Any, size: ModelSize) -> MemoryNeed:
        device = cls.device_of(options)
        return size.need(dtype_name(options.dtype, device), device=device)

    @classmethod
    def version_here(cls) -> str | None:
        return version(cls.library) if missing_packages() is None else None

    @classmethod
    def launch(cls, options: Any, model: Model | None) -> Launch:
        """Add the variable that OpenMP reads when torch is imported, unless it is set."""
        return Launch(environment={"GOMP_SPINCOUNT": os.environ.get("GOMP_SPINCOUNT", SPINS)})

    def open_device(self) -> None:
        """Set torch's threads and device. Raises `EngineUnavailable` for a missing device."""
        import torch

        if self.options.threads is not None:
            torch.set_num_threads(self.options.threads)
        self._device = chosen_device(self.options.device)
        if self._device.type == "cuda":  # for this thread: streams and graphs, which name no device, are on this one
            torch.cuda.set_device(self._device)
        os.environ.setdefault(
            "TORCHINDUCTOR_CACHE_DIR", str(compilations_folder(self._device))
        )  # read when it compiles

    def open_model(self) -> Model:
        """Open the device, and read the limits and the tokenizer from the model's files."""
        assert self.model is not None
        self.open_device()
        folder = self.model.folder
        self._context_length, self._end_ids = context_length(folder), end_ids(folder)
        self._tokenizer = tokenizer_of(folder)
        return self.model

    def import_transformers(self) -> None:
        """Import the classes that load a network, so that this time counts as importing and not as loading."""
        from transformers import AutoModelForCausalLM  # noqa: F401

        self.end_phase("imports")

    def info(self, dtype: str, concurrency: int | None = None, **options: Any) -> EngineInfo:
        """Return the facts. `concurrency`: requests in one batch; none: one by one. `options`: their actual values."""
        device, libraries = str(self._device), LIBRARIES
        return self.describe(
            version(self.library), dtype, device, self._context_length, concurrency, libraries, **options
        )

    def stats(self) -> EngineStats:
        import torch

        if self._device.type == "mps":
            return EngineStats(device_memory_bytes=torch.mps.driver_allocated_memory())
        if self._device.type != "cuda":
            return EngineStats()
        now, peak = torch.cuda.memory_allocated(self._device), torch.cuda.max_memory_allocated(self._device)
        return EngineStats(device_memory_bytes=now, device_memory_peak_bytes=peak)


def missing_packages() -> str | None:
    """Return one sentence if a package is missing that all engines on PyTorch need."""
    if missing := [name for name in PACKAGES if find_spec(name) is None]:
        return f"it needs {', '.join(missing)}; install with: {install_command('transformers')}"
    return None


def missing_gpu() -> str | None:
    """Return one sentence if there is no NVIDIA GPU. The driver is asked, because importing torch takes seconds."""
    return None if visible_gpus() else "it needs an NVIDIA GPU and its driver, and there is none."


def chosen_device(requested: str) -> torch.device:
    """Return the device with its number: `torch.cuda.set_device` requires the number. Raises `EngineUnavailable` if it
    does not exist.

    `auto` is never the CPU of a machine with a GPU: torch would silently fall back to it, and a device other than
    intended would be measured.
    """
    import torch

    if requested == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda", torch.cuda.current_device())
        if (reason := why_no_cuda()) is not None:
            raise EngineUnavailable(f"{reason}; to measure the CPU, say so with -o device=cpu.")
        return torch.device("cpu")
    try:
        device = torch.device(requested)
    except RuntimeError as error:
        raise EngineUnavailable(f"there is no device `{requested}`; use cpu, cuda or cuda:<number>.") from error
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise EngineUnavailable("there is no device `mps`: it is that of Apple's processors.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        because = why_no_cuda() or f"torch finds {torch.cuda.device_count()} CUDA devices"
        raise EngineUnavailable(f"there is no device `{requested}`: {because}; use cpu.")
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device


def why_no_cuda() -> str | None:
    """Return why torch does not see this machine's GPU; `None` if there is none, or it is hidden from this process."""
    import torch

    number, hip = torch.__version__, getattr(torch.version, "hip", None)
    built = torch.version.cuda or hip
    if amd_gpus() and hip is None:
        return f"Linux reports an AMD GPU, and torch {number} is a build without ROCm; install one as pytorch.org says"
    if not visible_gpus():
        if built is None or not gpu_without_driver():
            return None
        return (
            "Linux reports an NVIDIA GPU, and its driver's library is not here; a container needs NVIDIA's container "
            "toolkit and `--gpus all`"
        )
    if built is None:
        return f"the driver reports a GPU, and torch {number} is a build without CUDA; install one as pytorch.org says"
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError) as error:
        return f"the driver reports a GPU, and torch {number} cannot use it: {first_line(error).rstrip('.')}"
    kernels = [int(name.rpartition("_")[2]) for name in torch.cuda.get_arch_list() if name[-1].isdigit()]
    for index in range(torch.cuda.device_count() if hip is None and kernels else 0):
        major, minor = torch.cuda.get_device_capability(index)
        if 10 * major + minor < min(kernels):
            oldest = ".".join(map(str, divmod(min(kernels), 10)))
            return f"torch {number} has kernels from compute capability {oldest} on, and a GPU has {major}.{minor}"
    return None


def build_here() -> dict[str, Any] | None:
    """Return the fields of `engines.machine.cuda.Build`; `None` without torch."""
    if find_spec("torch") is None:
        return None
    import torch

    number, cuda = torch.__version__.partition("+")[0], torch.version.cuda
    if cuda is None:
        return {"text": f"torch {number} without CUDA", "has_cuda": False, "problem": None}
    cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    text = f"torch {number} with CUDA {cuda} and cuDNN {cudnn}"
    return {"text": text, "has_cuda": True, "problem": why_no_cuda()}


def expected_device(requested: str) -> str:
    """Return the device that `chosen_device` will choose or refuse, without importing torch."""
    if requested != "auto":
        return requested
    return "cuda" if visible_gpus() or amd_gpus() else "cpu"


def chosen_dtype(requested: str, device: torch.device) -> torch.dtype:
    import torch

    capability = torch.cuda.get_device_capability(device) if device.type == "cuda" else None
    dtype: torch.dtype = getattr(torch, dtype_name(requested, str(device), capability))
    return dtype


def dtype_name(requested: str, device: str, capability: tuple[int, int] | None = None) -> str:
    if requested != "auto":
        return requested
    return automatic_dtype(device, "bfloat16" if _cpu_computes_bf16() else "float32", capability)


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _cpu_computes_bf16() -> bool:
    """Return whether the CPU has bfloat16 instructions; without them, bfloat16 is slower than float32."""
    try:
        with open("/proc/cpuinfo") as cpuinfo:
            flags = next(line for line in cpuinfo if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        return False
    return any(name in flags for name in NATIVE_BF16)


if __name__ == "__main__":
    print(json.dumps(build_here()))
