"""The GPUs and cores that processes started from here may use."""

from __future__ import annotations

import os
from collections.abc import Mapping

from engines.machine.nvml import NoAnswer, driver


def visible_gpus(environment: Mapping[str, str | None] | None = None) -> list[str]:
    """NVIDIA GPUs as CUDA_VISIBLE_DEVICES names them: those that it allows, else all that the driver reports.

    `environment` are variables that a process gets besides those of this one.
    """
    allowed = (os.environ | dict(environment or {})).get("CUDA_VISIBLE_DEVICES")
    if allowed is not None:
        return [name.strip() for name in allowed.split(",") if name.strip() not in {"", "-1"}]
    try:
        with driver() as nvml:
            return [str(index) for index in range(nvml.nvmlDeviceGetCount())]
    except NoAnswer:
        return []


def usable_cores() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))
