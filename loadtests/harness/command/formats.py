"""Compared engines use the same number format, if they have one in common."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loadtests.harness.command.server_process import PYTHON

OPTION = "dtype"
NO_FORMATS = {"auto", "gguf"}  # they leave the format to the engine or to the file
ON_CPU, ON_GPU = ("float32", "bfloat16", "float16"), ("bfloat16", "float16", "float32")


def same_format(options: Mapping[str, list[str]]) -> tuple[dict[str, list[str]], str | None]:
    """The engines' options with a common `dtype`, and a sentence about it, or `None`.

    `options` are each engine's `name=value`. A format that was given stays as it is.
    """
    given = {word.partition("=")[0] for words in options.values() for word in words}
    if len(options) < 2 or OPTION in given:
        return dict(options), None
    formats = {engine: choices for engine in options if (choices := _formats(engine))}
    if len(formats) < 2:
        return dict(options), None
    preferred = ON_GPU if Path("/dev/nvidiactl").exists() else ON_CPU
    common = next((each for each in preferred if all(each in choices for choices in formats.values())), None)
    if common is None:
        return dict(
            options
        ), f"{', '.join(formats)} have no number format in common: the report says which one each used."
    chosen = {
        engine: [*words, f"{OPTION}={common}"] if engine in formats else list(words)
        for engine, words in options.items()
    }
    return chosen, f"{', '.join(formats)} compute in {common}; -o {OPTION}=… or -o ENGINE.{OPTION}=… changes that."


def _formats(engine: str) -> Sequence[str]:
    """Number formats that the engine's option offers; none where it has no such option."""
    done = subprocess.run(
        [*PYTHON, "-m", "enginebench", "engines", engine, "--json"], capture_output=True, text=True, check=False
    )
    try:
        (listed,) = json.loads(done.stdout)
    except ValueError:
        return ()
    choices: list[Any] = next((one.get("choices") or [] for one in listed["options"] if one["name"] == OPTION), [])
    return [choice for choice in choices if choice not in NO_FORMATS]
