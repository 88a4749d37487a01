"""What the engines' GPU code needs (NVIDIA driver, CUDA, cuDNN, GPU), compared with this machine.

Nothing is imported for it: torch takes seconds, and some engines have a torch of their own in another environment. Its
version file and the metadata of the packages beside it say what it was built with.
"""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path

from engines.contract.base import Engine
from engines.contract.errors import EngineUnavailable
from engines.machine.devices import NoAnswer, driver

# Minor version compatibility: the oldest driver for a CUDA major version, on Linux
# (https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html).
OLDEST_DRIVER = {11: 450, 12: 525, 13: 580}
OLDEST_GPU = {11: (3, 5), 12: (5, 0), 13: (7, 5)}  # compute capability that the compilers of that version still know
OLDEST_TOOLKIT = (11, 4)  # of cudarc, on which Candle and CubeCL build
QUESTION_TIMEOUT = 20.0  # seconds
WHERE_TORCH_IS = "from importlib.util import find_spec as find; print(getattr(find('torch'), 'origin', ''))"

Version = tuple[int, ...]
UNKNOWN: Version = (0,)


@dataclass(frozen=True, slots=True)
class Machine:
    """`cuda` is the newest that the driver runs natively; `capabilities` those of the GPUs."""

    driver: str
    cuda: Version
    capabilities: tuple[Version, ...]


@dataclass(frozen=True, slots=True)
class Build:
    """What an engine's GPU code was built with, or would be built by: `cuda` is `None` for a build without it."""

    library: str
    cuda: Version | None
    cudnn: str | None = None

    @property
    def text(self) -> str:
        if self.cuda is None:
            return f"{self.library} without CUDA"
        if self.cuda == UNKNOWN:
            return f"{self.library} with CUDA"
        return f"{self.library} with CUDA {dotted(self.cuda)}" + (f" and cuDNN {self.cudnn}" if self.cudnn else "")


GPU_CODE = "GPU code of "  # what the checks of engines with code for GPUs are called, before the engine


@dataclass(frozen=True, slots=True)
class Check:
    """One line of `doctor`'s list. enginebench works without what is not `required`; what is not `needed` would have no
    use on this machine."""

    name: str
    ok: bool
    found: str
    remedy: str = ""
    required: bool = False
    needed: bool = True


def gpu_checks(engines: dict[str, type[Engine]]) -> Iterator[Check]:
    """Of each engine that has code for GPUs. Without a GPU nothing is missing, and what is not there is not needed."""
    here = machine()
    for name, kind in engines.items():
        if kind.cuda_by == "torch":
            yield judge(name, torch_of(kind), here, "install torch for another CUDA, as pytorch.org/get-started says")
        elif kind.cuda_by == "toolkit":
            remedy = "install NVIDIA's CUDA toolkit, then `make engines FEATURES=cuda`"
            yield judge(name, toolkit(), here, remedy, OLDEST_TOOLKIT, "no CUDA toolkit (nvcc) to build it with")
        elif kind.cuda_by == "wheel":
            yield judge(name, _wheel_of(name, kind), here, f"install {name}'s wheel for CUDA from its releases")


def by_outcome(checks: Sequence[Check]) -> list[Check]:
    """For reading: engines whose GPU code was judged alike share one line, in the place of the first."""
    engines: dict[Check, list[str]] = {}
    for check in checks:
        unnamed = replace(check, name="") if check.name.startswith(GPU_CODE) else check
        engines.setdefault(unnamed, []).append(check.name.removeprefix(GPU_CODE))
    return [
        check
        if check.name
        else replace(check, name=f"{GPU_CODE}{names[0]}")
        if len(names) == 1
        else replace(check, name=f"{GPU_CODE}{len(names)} engines", found=f"{', '.join(names)}: {check.found}")
        for check, names in engines.items()
    ]


def judge(
    engine: str,
    build: Build | None,
    here: Machine | None,
    remedy: str,
    oldest: Version = UNKNOWN,
    absent: str = "not installed",
) -> Check:
    """`oldest` is the least CUDA version that the engine's code takes."""
    check = partial(Check, f"{GPU_CODE}{engine}")
    sentence = f"{remedy[0].upper()}{remedy[1:]}."
    if build is None or build.cuda is None:
        return check(here is None, absent if build is None else build.text, sentence, needed=here is not None)
    if build.cuda < oldest:
        return check(False, f"{build.text}, where {dotted(oldest)} or newer is needed", sentence)
    major = build.cuda[0]
    oldest_driver, capability = OLDEST_DRIVER.get(major), OLDEST_GPU.get(major)
    if oldest_driver is None or capability is None:
        return check(True, f"{build.text}; what it needs of the driver is not known here")
    needs = f"driver {oldest_driver} or newer and compute capability {dotted(capability)}"
    if here is None:
        return check(True, f"{build.text}; on a GPU it needs {needs}")
    if _numbers(here.driver)[:1] < (oldest_driver,):
        found = f"{build.text} needs driver {oldest_driver} or newer, and this is {here.driver}"
        return check(False, found, f"Update the driver, or {remedy}.")
    if old := [one for one in here.capabilities if one < capability]:
        found = f"{build.text} needs compute capability {dotted(capability)}, and a GPU here has {dotted(min(old))}"
        return check(False, found, f"Use a newer GPU, or {remedy}.")
    return check(True, f"{build.text}; driver {here.driver} runs it")


def machine() -> Machine | None:
    """By NVML; `None` without a driver or a GPU."""
    try:
        with driver() as nvml:
            cuda = int(nvml.nvmlSystemGetCudaDriverVersion_v2())
            handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
            capabilities = tuple(tuple(nvml.nvmlDeviceGetCudaComputeCapability(handle)) for handle in handles)
            release = str(nvml.nvmlSystemGetDriverVersion())
    except NoAnswer:
        return None
    return Machine(release, (cuda // 1000, cuda % 1000 // 10), capabilities) if handles else None


def torch_of(kind: type[Engine]) -> Build | None:
    """Of the environment that the engine runs in; `None` where that has no torch."""
    try:
        python = kind.launch(kind.Options(), None).python
    except EngineUnavailable:
        return None
    if python is None or python == sys.executable:
        return torch_here()
    said = _said([python, "-c", WHERE_TORCH_IS]).strip()
    return torch_in(Path(said).parents[1]) if said else None


@cache
def torch_here() -> Build | None:
    """Of this interpreter, wherever it has it from: its own packages, the system's or a user's."""
    found = find_spec("torch")
    return None if found is None or found.origin is None else torch_in(Path(found.origin).parents[1])


def torch_in(packages: Path) -> Build | None:
    """The torch in a folder of installed packages."""
    try:
        said = (packages / "torch" / "version.py").read_text()
    except OSError:
        return None
    version, cuda = (re.search(rf"^{name}\b[^=]*= '([^']*)'", said, re.MULTILINE) for name in ("__version__", "cuda"))
    number = version[1].partition("+")[0] if version else "of unknown version"
    found = [
        one.version
        for one in importlib.metadata.distributions(path=[str(packages)])
        if one.name.lower().startswith("nvidia-cudnn-cu")
    ]
    return Build(f"torch {number}", _numbers(cuda[1]) if cuda else None, next(iter(found), None))


def toolkit() -> Build | None:
    """By NVIDIA's compiler on PATH, or in its usual folder; `None` where there is none."""
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if nvcc is None:
        return None
    said = _said([nvcc, "--version"])
    release = re.search(r"release (\d+)\.(\d+)", said)
    return Build("nvcc", (int(release[1]), int(release[2]))) if release else None


def _wheel_of(name: str, kind: type[Engine]) -> Build | None:
    """Which version of CUDA it brings, a wheel does not say."""
    for one in importlib.metadata.distributions():
        if one.name.lower() in {name, f"{name}-cuda"}:
            with_cuda = kind.device_of(kind.Options()) == "cuda"
            return Build(f"{one.name} {one.version}", UNKNOWN if with_cuda else None)
    return None


def _said(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=QUESTION_TIMEOUT).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def dotted(version: Version) -> str:
    return ".".join(map(str, version))


def _numbers(text: str) -> Version:
    return tuple(int(part) for part in re.findall(r"\d+", text))
