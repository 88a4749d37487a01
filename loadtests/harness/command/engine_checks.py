"""Mistakes in a contender's engine are reported before anything is measured; compared engines get one number format.

Engines are not imported here: `enginebench engines NAME` checks one, in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from enginebench.settings.schema import UserMistake
from loadtests.harness.command.contenders import Contender
from loadtests.harness.command.server_process import PYTHON

OPTION = "dtype"
NO_FORMATS = {"auto", "gguf"}  # they leave the format to the engine or to the file
ON_CPU, ON_GPU = ("float32", "bfloat16", "float16"), ("bfloat16", "float16", "float32")


def checked(contenders: Sequence[Contender]) -> tuple[list[Contender], str | None]:
    """The contenders, those with engines in a common `dtype`, and a sentence about it, or `None`.

    Engines that have no choice of formats, and a format that was given, stay as they are. Raises `UserMistake` for an
    engine, a model or an option that does not exist, a wrong value, and an engine that cannot run here.
    """
    choices = {one.name: _choices(one) for one in contenders if one.engine}
    formats = {name: own for name, own in choices.items() if own}
    different = {one.engine for one in contenders if one.name in formats}
    given = any(option.startswith(f"{OPTION}=") for one in contenders for option in one.options)
    if given or len(different) < 2:
        return list(contenders), None
    preferred = ON_GPU if Path("/dev/nvidiactl").exists() else ON_CPU
    common = next((each for each in preferred if all(each in own for own in formats.values())), None)
    names = ", ".join(formats)
    if common is None:
        return list(contenders), f"{names} have no number format in common: the report says which one each used."
    alike = [
        replace(one, options=(*one.options, f"{OPTION}={common}")) if one.name in formats else one for one in contenders
    ]
    return alike, f"{names} compute in {common}; -o {OPTION}=… or -o NAME.{OPTION}=… changes that."


def _choices(one: Contender) -> list[str]:
    """The number formats that the engine offers."""
    command = [*PYTHON, "-m", "enginebench", "engines", one.engine, "--json"]
    command += [word for option in one.options for word in ("-o", option)]
    command += ["--model", one.model] if one.model else []
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise UserMistake(done.stderr.strip())
    (engine,) = json.loads(done.stdout)
    if engine["why_not_here"] and not one.options:  # an option may name another interpreter
        raise UserMistake(f"{one.engine} cannot run here: {engine['why_not_here']}")
    options: dict[str, Mapping[str, list[str]]] = {option["name"]: option for option in engine["options"]}
    return [each for each in options.get(OPTION, {}).get("choices", ()) if each not in NO_FORMATS]
