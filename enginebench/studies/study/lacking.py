"""Engines of a study that cannot run on this machine, with the reasons that they give, and their installation.

Engines are not imported here: `enginebench engines` is asked, in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from typing import Any

from enginebench.studies.study.grid import Grid, StudyEngine, StudyModel, texts_of
from loadtests.harness.command.server_process import PYTHON

INSTALL = "enginebench engines install"
REASON = "why_not_here"  # key of a row of `enginebench engines --json`


class Lacking:
    """Ask once per sitting: for all engines together whether they run here, and for each with each model that it is
    about to load whether its options are right and the model fits into memory."""

    def __init__(self) -> None:
        self._rows = _rows()
        self._refused: dict[tuple[str, str], str | None] = {}

    def engines(self, grid: Grid) -> Mapping[str, str]:
        """Return why engines of the grid cannot run here, by name."""
        named = {row.engine for row in grid.engines if self.is_missing(row)}
        return {name: str(row[REASON]) for name, row in self._rows.items() if name in named}

    def versions(self, grid: Grid) -> dict[str, str]:
        """Return the versions of the grid's engines that run here, and of what compiled them, by name."""
        rows = {row.engine: self._rows.get(row.engine, {}) for row in grid.engines}
        here = {name: row for name, row in rows.items() if row.get(REASON) is None}
        versions = {name: row["version"] for name, row in here.items() if row.get("version")}
        return versions | {f"compiler of {name}": row["compiler"] for name, row in here.items() if row.get("compiler")}

    def why_not(self, engine: StudyEngine, model: StudyModel) -> str | None:
        """Return the sentence that says why this engine cannot be measured with this model here."""
        if self.is_missing(engine):
            return f"{engine.engine} cannot run here: {self._rows[engine.engine][REASON]}"
        key = (engine.label, model.label)
        if key not in self._refused:
            command = [*PYTHON, "-m", "enginebench", "engines", engine.engine, "--json", "--model", model.name]
            command += [word for option in texts_of(engine.options) for word in ("-o", option)]
            done = subprocess.run(command, capture_output=True, text=True)
            reason = done.stderr.strip() or f"{engine.engine} gave no reason."
            self._refused[key] = reason if done.returncode else None
        return self._refused[key]

    def is_missing(self, engine: StudyEngine) -> bool:
        """Return whether it cannot run here with any model. An engine with a `python` of its own is installed there."""
        return "python" not in engine.options and self._rows.get(engine.engine, {}).get(REASON) is not None

    def install(self, name: str) -> bool:
        """Install it, and return whether it can run here now. uv's and our own lines go to standard error."""
        done = subprocess.run([*PYTHON, "-m", "enginebench", "engines", "install", name], stdout=2)
        self._rows = _rows()
        return done.returncode == 0 and self._rows.get(name, {}).get(REASON) is None


def _rows() -> dict[str, Mapping[str, Any]]:
    """Ask `enginebench engines` about each engine, by name."""
    done = subprocess.run(
        [*PYTHON, "-m", "enginebench", "engines", "--json"], capture_output=True, text=True, check=True
    )
    return {row["name"]: row for row in json.loads(done.stdout)}
