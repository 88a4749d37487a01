"""Compared engines use the same number format, if they have one in common."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from loadtests.harness.command.server_process import PYTHON
from settings.schema import UserMistake

OPTION = "dtype"
NO_FORMATS = {"auto", "gguf"}  # they leave the format to the engine or to the file
ON_CPU, ON_GPU = ("float32", "bfloat16", "float16"), ("bfloat16", "float16", "float32")


def same_format(options: Mapping[str, list[str]]) -> tuple[dict[str, list[str]], str | None]:
    """The engines' options with a common `dtype`, and a sentence about it, or `None`.

    `options` are each engine's `name=value`. A format that was given stays as it is. Raises `UserMistake` for an engine
    or an option that does not exist, or a wrong value: its server would find that out only after the engines before it
    were measured.
    """
    if len(options) < 2:
        return dict(options), None
    listed = {engine: _options(engine, words) for engine, words in options.items()}
    given = {word.partition("=")[0] for words in options.values() for word in words}
    formats = {
        engine: choices
        for engine, own in listed.items()
        if (choices := [one for one in own.get(OPTION, ()) if one not in NO_FORMATS])
    }
    if OPTION in given or len(formats) < 2:
        return dict(options), None
    preferred = ON_GPU if Path("/dev/nvidiactl").exists() else ON_CPU
    common = next((each for each in preferred if all(each in choices for choices in formats.values())), None)
    if common is None:
        said = f"{', '.join(formats)} have no number format in common: the report says which one each used."
        return dict(options), said
    chosen = {
        engine: [*words, f"{OPTION}={common}"] if engine in formats else list(words)
        for engine, words in options.items()
    }
    return chosen, f"{', '.join(formats)} compute in {common}; -o {OPTION}=… or -o ENGINE.{OPTION}=… changes that."


def _options(engine: str, given: Sequence[str]) -> dict[str, Sequence[str]]:
    """The choices of each of the engine's options, by name. Raises `UserMistake` for what was given wrongly."""
    command = [*PYTHON, "-m", "enginebench", "engines", engine, "--json"]
    command += [word for option in given for word in ("-o", option)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise UserMistake(done.stderr.strip())
    (listed,) = json.loads(done.stdout)
    return {one["name"]: one["choices"] for one in listed["options"]}
