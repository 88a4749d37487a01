"""What Inductor needs to compile, and where it keeps what it compiled: for engines that use `torch.compile`."""

from __future__ import annotations

import os
import platform
import shutil
import sysconfig
from pathlib import Path

from engines.machine.cuda import torch_here
from engines.machine.devices import compute_capability
from engines.models.cache import cache_folder


def compilations_folder(device: str) -> Path:
    """In the user's cache, for this torch and kind of device: machine code of a GPU belongs to its architecture and to
    the CUDA that compiled it."""
    build = torch_here()
    parts = ["torch" if build is None else build.text.replace(" ", "-")]
    if device.startswith("cuda"):
        capability = compute_capability(device)
        parts.append("gpu" if capability is None else f"sm{capability[0]}{capability[1]}")
    else:
        parts.append(f"{device}-{platform.machine()}")
    return cache_folder() / "inductor" / "-".join(parts)


def missing_compiler() -> str | None:
    """One sentence where Inductor, or Triton on a GPU, cannot compile what it writes: Python modules in C and C++."""
    if not any(shutil.which(name) for name in (os.environ.get("CXX", ""), "g++", "clang++")):
        return "Inductor needs a C++ compiler, and there is neither g++ nor clang++; on Debian: apt-get install g++"
    if not (headers := Path(sysconfig.get_path("include"), "Python.h")).exists():
        return f"Inductor needs Python's headers, and there is no {headers}; on Debian: apt-get install python3-dev"
    return None
