"""What the engines of a study lack on this machine, in their own sentences, and the installation of what is missing.

Engines are not imported here: `enginebench engines` says it, in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from typing import Any

from enginebench.studies.study.grid import Grid, StudyEngine, StudyModel
from loadtests.harness.command.server_process import PYTHON

INSTALL = "enginebench engines install"


class Lacking:
    """Asked once per sitting: of all engines together whether they run here, and of each with each model that it is
    about to load whether its options are right and the model fits into memory."""

    def __init__(self) -> None:
        self._rows = _rows()
        self._refused: dict[tuple[str, str], str | None] = {}

    def engines(self, grid: Grid) -> Mapping[str, str]:
        """By the engine's name, of those of the grid that cannot run here."""
        names = {
            one.engine for one in grid.engines if "python" not in one.options
        }  # with one it is installed elsewhere
        return {name: reason for name in self._rows if name in names and (reason := self._missing(name)) is not None}

    def versions(self, grid: Grid) -> dict[str, str]:
        """Of the grid's engines that run here, by name."""
        found = {one.engine: self._rows.get(one.engine, {}).get("version") for one in grid.engines}
        return {name: version for name, version in found.items() if version is not None and self._missing(name) is None}

    def _missing(self, name: str) -> str | None:
        reason: str | None = self._rows.get(name, {}).get("why_not_here")
        return reason

    def why_not(self, engine: StudyEngine, model: StudyModel) -> str | None:
        """One sentence where this engine cannot be measured with this model here."""
        if self.is_missing(engine):
            return f"{engine.engine} cannot run here: {self._missing(engine.engine)}"
        key = (engine.label, model.label)
        if key not in self._refused:
            self._refused[key] = _refused(engine, model)
        return self._refused[key]

    def is_missing(self, engine: StudyEngine) -> bool:
        """Whether it cannot run here with any model."""
        return "python" not in engine.options and self._missing(engine.engine) is not None

    def install(self, name: str) -> bool:
        """Whether it can run here now. uv's and our own lines go to standard error."""
        done = subprocess.run([*PYTHON, "-m", "enginebench", "engines", "install", name], stdout=2)
        self._rows = _rows()
        return done.returncode == 0 and self._missing(name) is None


def _rows() -> dict[str, Mapping[str, Any]]:
    """What `enginebench engines` says of each engine, by name."""
    done = subprocess.run(
        [*PYTHON, "-m", "enginebench", "engines", "--json"], capture_output=True, text=True, check=True
    )
    return {row["name"]: row for row in json.loads(done.stdout)}


def _refused(engine: StudyEngine, model: StudyModel) -> str | None:
    command = [*PYTHON, "-m", "enginebench", "engines", engine.engine, "--json", "--model", model.name]
    command += [word for option in engine.option_texts for word in ("-o", option)]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stderr.strip() or f"{engine.engine} gave no reason." if done.returncode else None
