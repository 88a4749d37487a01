"""Facts about the machine that makes the load, without which runs from different machines cannot be compared."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
from collections import Counter
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

VECTORS = {
    "amx_bf16": "AMX",
    "avx512_bf16": "AVX-512 with bfloat16",
    "avx512f": "AVX-512",
    "avx2": "AVX2",
    "sve2": "SVE2",
    "sve": "SVE",
    "asimd": "NEON",
}
"""Vector instructions by Linux's name, the widest first."""


@cache
def host_facts() -> dict[str, Any]:
    """Return `memory` in bytes, logical `cores`, and the `usable_cores` of this process."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "usable_cores": len(psutil.Process().cpu_affinity()) if hasattr(psutil.Process, "cpu_affinity") else None,
        "memory": psutil.virtual_memory().total,
        "gpus": _gpus(),
        "os": platform.platform(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
    }


@cache
def clock_id() -> str:
    """Return an id that two processes share if they read the same monotonic clock (one boot of one machine)."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return f"{socket.gethostname()}@{psutil.boot_time():.0f}"


def versions(*packages: str) -> dict[str, str]:
    """Return versions by package name, without packages that are not installed."""
    installed = {}
    for package in packages:
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            continue
    return installed


def commit_here() -> str | None:
    """Return the commit of this tool, if it runs from a clone."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return None
    try:
        answer = subprocess.run(["git", "-C", root, "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() or None


def _gpus() -> str | None:
    """Name the GPUs that NVIDIA's and AMD's drivers report, unless they are hidden: `2 × NVIDIA H200`."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in {"", "-1"}:
        return None
    names: Counter[str] = Counter()
    try:
        import pynvml

        pynvml.nvmlInit()
        for index in range(pynvml.nvmlDeviceGetCount()):
            with suppress(pynvml.NVMLError):  # a lost GPU
                names[str(pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(index)))] += 1
        pynvml.nvmlShutdown()
    except Exception:  # the package, the library and the driver raise different exceptions
        return "AMD GPU" if os.path.exists("/dev/kfd") else None
    return ", ".join(name if count == 1 else f"{count} × {name}" for name, count in names.items()) or None


def _cpu_model() -> str:
    """Return the processor's name and widest vector instructions, such as `AMD EPYC (AVX2)`.

    Virtual machines with one name differ in them. With AVX2 only, vLLM in bfloat16 serves a fifth of its tokens/s in
    float32.
    """
    facts: dict[str, str] = {}
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    flags = facts.get("flags", facts.get("Features", "")).split()
    vectors = next((name for flag, name in VECTORS.items() if flag in flags), None)
    model = facts.get("model name") or platform.processor() or platform.machine()
    return model if vectors is None else f"{model} ({vectors})"
