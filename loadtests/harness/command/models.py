"""A preset that this machine's memory cannot hold is refused before anything is downloaded or loaded."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import psutil

from loadtests.harness.command.server_process import PYTHON

RANDOM = "random:"
KINDS = {"float32": "float32", "q8_0": "8-bit", "q4_0": "4-bit"}  # by the engines' option `dtype`
USUAL = "float16"  # as large as bfloat16; an engine's own choice takes no less
MEBIBYTE = 1024**2


@dataclass(frozen=True, slots=True)
class Preset:
    """`memory` are bytes by number format: weights, and the cache of one sequence."""

    name: str
    memory: Mapping[str, int]


def presets() -> tuple[Preset, ...]:
    """As `enginebench models` lists them."""
    done = subprocess.run(
        [*PYTHON, "-m", "enginebench", "models", "--json"], capture_output=True, text=True, check=True
    )
    return tuple(Preset(one["name"], one["memory_bytes"]) for one in json.loads(done.stdout))


def too_large(model: str, options: Sequence[str], known: Sequence[Preset], free: int) -> str | None:
    """A sentence where `model` is a preset that needs more than `free` bytes; `options` are the engine's."""
    preset = next((one for one in known if model.removeprefix(RANDOM) == one.name), None)
    if preset is None or "memory=ignore" in options:
        return None
    kind = KINDS.get(next((option[6:] for option in options if option.startswith("dtype=")), ""), USUAL)
    needed = preset.memory[kind]
    if needed <= free:
        return None
    return (
        f"{model} needs at least {needed / 1e9:.1f} GB of memory ({kind}), and {free / 1e9:.1f} GB are free: choose a "
        "smaller model or number format; -o memory=ignore loads it all the same."
    )


def free_memory() -> int:
    """Bytes that are free on this host, or on its GPU with most."""
    return max([psutil.virtual_memory().available, *_free_on_gpus()])


def _free_on_gpus() -> list[int]:
    query = ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(query, capture_output=True, text=True, timeout=10, check=True).stdout
        return [int(line) * MEBIBYTE for line in said.split()]
    except (OSError, subprocess.SubprocessError, ValueError):
        return []
