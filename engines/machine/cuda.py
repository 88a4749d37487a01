"""The CUDA version of the engines' GPU code, and why it does not work with this machine's driver and GPUs.

The library or toolkit that provides CUDA is queried. torch is imported in the environment of each engine, in a separate
process, because it knows best which driver and GPUs it can use (`engines.pytorch.device`).
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache

from enginebench.settings.system import last_line
from engines.contract.base import Engine, Launch
from engines.contract.errors import EngineUnavailable
from engines.machine.devices import ask_driver, cuda_program
from engines.process.launching import QUESTION_TIMEOUT, environment_of

OLDEST_TOOLKIT = (11, 4)  # required by cudarc, on which Candle and CubeCL build
PROBE = "engines.pytorch.device"  # run as a program, it prints the `Build` of its torch


@dataclass(frozen=True, slots=True)
class Build:
    """The toolkit or library of an engine's GPU code, and why it does not work here."""

    text: str
    has_cuda: bool
    problem: str | None = None


def torch_of(kind: type[Engine]) -> Build | None:
    """Ask torch in the engine's environment; `None` if it has no torch."""
    try:
        return _torch_in(kind.launch(kind.Options(), None).python or sys.executable)
    except EngineUnavailable:
        return None


@cache
def _torch_in(python: str) -> Build | None:
    line = last_line(_output_of([python, "-m", PROBE], environment_of(Launch(python=python), PROBE)))
    return Build(**json.loads(line)) if line.startswith("{") else None


def toolkit() -> Build | None:
    """Ask NVIDIA's compiler; `None` if there is none."""
    nvcc = cuda_program("nvcc")
    release = re.search(r"release (\d+)\.(\d+)", _output_of([nvcc, "--version"])) if nvcc else None
    if release is None:
        return None
    version, text = (int(release[1]), int(release[2])), f"nvcc with CUDA {release[1]}.{release[2]}"
    newest = ask_driver(lambda nvml: int(nvml.nvmlSystemGetCudaDriverVersion_v2()) // 1000, version[0])
    if version < OLDEST_TOOLKIT:
        oldest = ".".join(map(str, OLDEST_TOOLKIT))
        return Build(text, has_cuda=True, problem=f"{text}, where {oldest} or newer is needed")
    if newest < version[0]:  # a driver runs all minor versions of the major ones that it knows
        return Build(text, has_cuda=True, problem=f"{text}, and the driver runs CUDA {newest} at most")
    return Build(text, has_cuda=True)


def wheel_of(name: str, kind: type[Engine]) -> Build | None:
    """Describe the installed wheel, whose name tells neither its device nor its version of CUDA."""
    for distribution in importlib.metadata.distributions():
        # Remains of another installation have no name.
        if (distribution.name or "").lower() in {name, f"{name}-cuda"}:
            has_cuda = kind.device_of(kind.Options()) == "cuda"
            return Build(
                f"{distribution.name} {distribution.version} {'with' if has_cuda else 'without'} CUDA", has_cuda
            )
    return None


def _output_of(command: list[str], environment: dict[str, str] | None = None) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=QUESTION_TIMEOUT, env=environment)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
