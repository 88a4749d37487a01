"""Checks of the contenders' engines before anything is measured, and a common number format for compared engines.

Engines are not imported here: `enginebench engines NAME` checks an engine in a separate process.
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
NO_FORMATS = {"auto", "gguf"}  # the engine or the file decides the format
ON_CPU, ON_GPU = ("float32", "bfloat16", "float16"), ("bfloat16", "float16", "float32")


def checked(contenders: Sequence[Contender]) -> tuple[list[Contender], str | None]:
    """Return the contenders with a common `dtype` for their engines, and a sentence about it, or `None`.

    Engines without a choice of formats are not changed; if the user chose a format, no engine is. Raises `UserMistake`
    for an engine, a model or an option that does not exist, a wrong value, and an engine that cannot run on this
    machine.
    """
    choices = {contender.name: _choices(contender) for contender in contenders if contender.engine}
    formats = {name: offered for name, offered in choices.items() if offered}
    different = {contender.engine for contender in contenders if contender.name in formats}
    chosen = any(option.startswith(f"{OPTION}=") for contender in contenders for option in contender.options)
    if chosen or len(different) < 2:
        return list(contenders), None
    preferred = ON_GPU if Path("/dev/nvidiactl").exists() else ON_CPU
    common = next((dtype for dtype in preferred if all(dtype in offered for offered in formats.values())), None)
    names = ", ".join(formats)
    if common is None:
        return list(contenders), f"{names} have no number format in common: the report names the format of each."
    for_all = f"{OPTION}={common}"
    equal = [
        replace(contender, options=(*contender.options, for_all)) if contender.name in formats else contender
        for contender in contenders
    ]
    return equal, f"{names} compute in {common}; -o {OPTION}=… or -o NAME.{OPTION}=… changes that."


def _choices(contender: Contender) -> list[str]:
    """Return the number formats that the engine offers."""
    command = [*PYTHON, "-m", "enginebench", "engines", contender.engine, "--json"]
    command += [word for option in contender.options for word in ("-o", option)]
    command += ["--model", contender.model] if contender.model else []
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise UserMistake(done.stderr.strip())
    (engine,) = json.loads(done.stdout)
    if engine["why_not_here"] and not contender.options:  # an option may name another interpreter
        raise UserMistake(f"{contender.engine} cannot run here: {engine['why_not_here']}")
    options: dict[str, Mapping[str, list[str]]] = {option["name"]: option for option in engine["options"]}
    return [dtype for dtype in options.get(OPTION, {}).get("choices", ()) if dtype not in NO_FORMATS]
