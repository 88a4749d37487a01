"""Inductor's requirements, and the cache of its output: for engines that use `torch.compile`."""

from __future__ import annotations

import os
import platform
import shutil
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

from engines.models.cache import cache_folder

if TYPE_CHECKING:
    import torch


def compilations_folder(device: torch.device) -> Path:
    """Return a folder of the user's cache for this torch and kind of device: machine code of a GPU belongs to its
    architecture and to the CUDA that compiled it."""
    import torch

    kind = f"{device.type}-{platform.machine()}"
    if device.type == "cuda":
        built = f"hip{torch.version.hip}" if torch.version.hip else f"cuda{torch.version.cuda}"
        kind = f"{built}-sm{''.join(map(str, torch.cuda.get_device_capability(device)))}"
    return cache_folder() / "inductor" / f"torch-{torch.__version__.partition('+')[0]}-{kind}"


def missing_compiler() -> str | None:
    """Return one sentence if Inductor, or Triton on a GPU, cannot compile its output: Python modules in C and C++."""
    if not any(shutil.which(name) for name in (os.environ.get("CXX", ""), "g++", "clang++")):
        return "Inductor needs a C++ compiler, and there is neither g++ nor clang++; on Debian: apt-get install g++"
    if not (headers := Path(sysconfig.get_path("include"), "Python.h")).exists():
        return f"Inductor needs Python's headers, and there is no {headers}; on Debian: apt-get install python3-dev"
    return None
