"""Engines of a study that cannot run on this machine, with their reasons.

Engines are not imported here: `enginebench engines` is asked, in a separate process.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from typing import Any

from enginebench.studies.study.grid import Grid, StudyEngine, StudyModel, texts_of
from loadtests.harness.command.server_process import PYTHON

REASON = "why_not_here"  # key of a row of `enginebench engines --json`


class Lacking:
    """Asks once per sitting whether the engines run here and, before an engine loads a model, whether its options are
    valid and the model fits into memory."""

    def __init__(self) -> None:
        done = subprocess.run(
            [*PYTHON, "-m", "enginebench", "engines", "--json"], capture_output=True, text=True, check=True
        )
        self._rows: dict[str, Mapping[str, Any]] = {row["name"]: row for row in json.loads(done.stdout)}
        self._refused: dict[tuple[str, str], str | None] = {}

    def engines(self, grid: Grid) -> Mapping[str, str]:
        """Return why engines of the grid cannot run here, by name."""
        named = {row.engine for row in grid.engines if self.is_missing(row)}
        return {name: str(row[REASON]) for name, row in self._rows.items() if name in named}

    def versions(self, grid: Grid) -> dict[str, str]:
        """Return the versions of the grid's engines that run here, and of their compilers, by name."""
        rows = {row.engine: self._rows.get(row.engine, {}) for row in grid.engines}
        here = {name: row for name, row in rows.items() if row.get(REASON) is None}
        versions = {name: row["version"] for name, row in here.items() if row.get("version")}
        return versions | {f"compiler of {name}": row["compiler"] for name, row in here.items() if row.get("compiler")}

    def why_not(self, engine: StudyEngine, model: StudyModel) -> str | None:
        """Return a sentence why this engine cannot be measured with this model here; `None` if it can."""
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
        """Return whether an engine cannot run here with any model. One with its own `python` is installed there."""
        return "python" not in engine.options and self._rows.get(engine.engine, {}).get(REASON) is not None
