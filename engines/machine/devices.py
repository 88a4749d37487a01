"""The cores and GPUs that processes started from here may use; NVML reports NVIDIA's GPUs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

GPUS_OF_LINUX = Path("/proc/driver/nvidia/gpus")  # a folder for each, as the kernel's module reports them
GPUS_OF_AMD = Path("/sys/class/kfd/kfd/topology/nodes")  # CPUs too, as nodes without SIMD units
FIRST_BFLOAT16 = (8, 0)  # compute capability from which NVIDIA's GPUs multiply bfloat16
# NVML and nvidia-smi number GPUs by PCI bus, CUDA by speed: with different GPUs, `cuda:1` would be ambiguous.
BY_BUS = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


class NoAnswer(Exception):
    """No package, no library, no driver, or a question that the driver does not answer."""


@contextmanager
def driver() -> Iterator[Any]:
    """Yield the module `pynvml`, initialised. Raises `NoAnswer`, even if a question inside the block fails."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception as error:  # the package, the library and the driver raise different exceptions
        raise NoAnswer(f"none found by NVML ({error})") from error
    try:
        yield pynvml
    except pynvml.NVMLError as error:
        raise NoAnswer(f"NVML failed ({error})") from error
    finally:
        pynvml.nvmlShutdown()


def ask_driver(question: Callable[[Any], T], otherwise: T) -> T:
    """Return the result of `question`, which gets `pynvml`; `otherwise` if the driver does not answer."""
    try:
        with driver() as nvml:
            return question(nvml)
    except NoAnswer:
        return otherwise


def gpu_count() -> int:
    """Return the number of NVIDIA GPUs that the driver reports, visible or not."""
    return ask_driver(lambda nvml: int(nvml.nvmlDeviceGetCount()), 0)


def visible_gpus(environment: Mapping[str, str | None] | None = None) -> list[str]:
    """Return NVIDIA GPUs as CUDA_VISIBLE_DEVICES names them: those that it allows, else all that the driver reports. As
    CUDA does, stop at the first number that no GPU has.

    `environment` has additional variables of a process.
    """
    count = gpu_count()
    allowed = visible_names((os.environ | dict(environment or {})).get("CUDA_VISIBLE_DEVICES"))
    if allowed is None or not count:
        return [str(index) for index in range(count)]
    return list(takewhile(lambda name: not name.isdigit() or int(name) < count, allowed))


def amd_gpus(environment: Mapping[str, str | None] | None = None) -> list[str]:
    """Return AMD's GPUs as HIP_VISIBLE_DEVICES names them: those that it allows, else all that Linux's own driver has.

    `environment` as in `visible_gpus`.
    """
    variables = os.environ | dict(environment or {})
    allowed = visible_names(variables.get("HIP_VISIBLE_DEVICES", variables.get("ROCR_VISIBLE_DEVICES")))
    nodes = [_words(file) for file in GPUS_OF_AMD.glob("*/properties")]
    units = [int(words[words.index("simd_count") + 1]) for words in nodes if "simd_count" in words]
    indices = [str(index) for index in range(sum(count > 0 for count in units))]
    return indices if allowed is None else allowed[: len(indices)]


def _words(file: Path) -> list[str]:
    """Return the words of a file; none if a container may not use its GPU, which makes it unreadable even for root."""
    try:
        return file.read_text().split()
    except OSError:
        return []


def visible_names(visible: str | None) -> list[str] | None:
    """Split the value of CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES, up to the first empty name or `-1`; `None` if it
    is not set."""
    if visible is None:
        return None
    return list(takewhile(lambda name: name not in {"", "-1"}, map(str.strip, visible.split(","))))


def gpus_at(device: str, count: int, visible: Sequence[str]) -> tuple[str, ...] | None:
    """Return the visible GPUs of a process on this device: `count` of them, for `cuda:1` from the second on.

    Empty on a CPU; `None` if they are not known, as on `vulkan`.
    """
    kind, _, number = device.partition(":")
    if kind not in {"cuda", "rocm"}:
        return () if kind in {"cpu", "none"} else None
    first = int(number) if number.isdigit() else 0
    return tuple(visible[first : first + count]) or None


def gpu_without_driver() -> bool:
    """Return whether Linux has an NVIDIA GPU that NVML does not see, as in a container started without it."""
    return any(GPUS_OF_LINUX.glob("*")) and not gpu_count()


def compute_capability(device: str) -> tuple[int, int] | None:
    """Return the capability of `cuda`, or `cuda:1`, the second visible GPU; `None` without NVML or GPU."""
    kind, _, number = device.partition(":")
    names = visible_gpus() if kind == "cuda" else []
    at = int(number) if number.isdigit() else 0
    if at >= len(names):
        return None
    return ask_driver(lambda nvml: tuple(nvml.nvmlDeviceGetCudaComputeCapability(gpu_handle(nvml, names[at]))), None)


def automatic_dtype(device: str, on_cpu: str = "float32", capability: tuple[int, int] | None = None) -> str:
    """Return the meaning of `dtype=auto` on a GPU, the same for every engine, for a fair comparison.

    `capability` is read from the driver by default.
    """
    kind = device.partition(":")[0]
    if kind == "cpu":
        return on_cpu
    if kind == "cuda":
        capability = capability or compute_capability(device)
        return "bfloat16" if capability is None or capability >= FIRST_BFLOAT16 else "float16"
    return "bfloat16" if kind == "rocm" else "float16"


def usable_cores() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def cuda_program(name: str) -> str | None:
    """Return the path of a program on PATH or of NVIDIA's toolkit in CUDA_HOME or its usual folder."""
    roots = filter(None, (os.environ.get("CUDA_HOME"), "/usr/local/cuda"))
    folders = [os.environ.get("PATH", ""), *(os.path.join(root, "bin") for root in roots)]
    return shutil.which(name, path=os.pathsep.join(folders))


def gpu_facts() -> list[dict[str, Any]]:
    """Return name, driver, bytes of memory and power limit in watts of each visible GPU; none without a driver. A slice
    of a GPU (MIG, vGPU) has no power limit of its own."""

    def facts(nvml: Any) -> list[dict[str, Any]]:
        return [
            {
                "name": str(nvml.nvmlDeviceGetName(handle)),
                "driver": str(nvml.nvmlSystemGetDriverVersion()),
                "memory": gpu_bytes(nvml, handle),
                "power_limit": _power_limit(nvml, handle),
            }
            for handle in (gpu_handle(nvml, name) for name in visible_gpus())
        ]

    return ask_driver(facts, [])


def gpu_bytes(nvml: Any, handle: Any) -> int | None:
    """Return the bytes of a GPU's memory; `None` if it shares the machine's, as GB10 does."""
    try:
        return int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
    except nvml.NVMLError:
        return None


def _power_limit(nvml: Any, handle: Any) -> float | None:
    try:
        return float(nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000)
    except nvml.NVMLError:
        return None


def gpu_handle(nvml: Any, name: str) -> Any:
    """Return the handle of a GPU by its number, its UUID or the beginning of that, or of a slice by its UUID."""
    if name.isdigit():
        return nvml.nvmlDeviceGetHandleByIndex(int(name))
    try:
        return nvml.nvmlDeviceGetHandleByUUID(name)
    except nvml.NVMLError:
        for index in range(nvml.nvmlDeviceGetCount()):
            with suppress(nvml.NVMLError):  # a lost GPU does not answer
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                if str(nvml.nvmlDeviceGetUUID(handle)).startswith(name):
                    return handle
        raise
