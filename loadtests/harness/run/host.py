"""Facts about the machine that makes the load: runs from different machines are not comparable without them."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil


@cache
def host_facts() -> dict[str, Any]:
    """`memory` in bytes; `cores` are logical ones, `usable_cores` those this process may run on."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "usable_cores": len(psutil.Process().cpu_affinity()) if hasattr(psutil.Process, "cpu_affinity") else None,
        "memory": psutil.virtual_memory().total,
        "os": platform.platform(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
    }


@cache
def clock_id() -> str:
    """Equal on two processes exactly when they read the same monotonic clock: one boot of one machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return f"{socket.gethostname()}@{psutil.boot_time():.0f}"


def versions(*packages: str) -> dict[str, str]:
    """Installed versions by package name; what is not installed is left out."""
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def commit_here() -> str | None:
    """The commit of this tool, when it runs from a clone."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return None
    try:
        answer = subprocess.run(["git", "-C", root, "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() or None


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
