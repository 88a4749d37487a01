"""The cells of a grid, in the order in which they are run.

A cell is one part with one model, one engine and one repeat: the unit that is run, resumed, skipped or failed. All
engines of a model are run once before any is run again, each time in another order, so that a drift of the machine
favours none; and a study that is stopped early has compared all of them. An engine stays loaded for its parts of a
repeat.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from msgspec import Struct

from enginebench.studies.study.grid import Grid, StudyEngine, StudyModel, StudyPart

T = TypeVar("T")


class Cell(Struct, frozen=True, order=True):
    """`part`, `model` and `engine` are labels of the grid; `repeat` counts from 0."""

    part: str
    model: str
    engine: str
    repeat: int

    @property
    def id(self) -> str:
        """Name of the run's folder, or of the bench's document."""
        return f"{self.part}.{self.model}.{self.engine}.{self.repeat + 1}"

    def prompt_set(self, seed: int) -> str:
        """Name the prompts: the same for all engines of a repeat, and others for each repeat and part, so that nothing
        is cached."""
        return f"{seed}-{self.part}-{self.model}-{self.repeat}"


def cells_of(grid: Grid) -> tuple[Cell, ...]:
    """List the cells in the order in which they are run."""
    cells: list[Cell] = []
    for model in grid.models:
        rows = [engine for engine in grid.engines if _parts(grid, model, engine)]
        for repeat in range(max(map(grid.repeats_of, grid.parts), default=0)):
            for engine in rotated(rows, repeat, grid.repeats):
                parts = [part for part in _parts(grid, model, engine) if repeat < grid.repeats_of(part)]
                cells += [Cell(part.name, model.label, engine.label, repeat) for part in parts]
    return tuple(cells)


def rotated(rows: Sequence[T], repeat: int, repeats: int) -> list[T]:
    """Begin with another row in each repeat, as far from the last as the repeats allow: each then comes early and
    late."""
    if not rows:
        return []
    evenly = (repeat * len(rows) + repeats // 2) // repeats
    first = (evenly if repeats <= len(rows) else repeat) % len(rows)
    return [*rows[first:], *rows[:first]]


def _parts(grid: Grid, model: StudyModel, engine: StudyEngine) -> list[StudyPart]:
    """List the parts in which this engine is measured with this model. A bench has no server, so it takes no engine's
    own."""
    if engine.models and model.label not in engine.models:
        return []
    return [
        part
        for part in grid.parts
        if (not part.models or model.label in part.models)
        and (not part.engines or engine.label in part.engines)
        and not (part.kind == "bench" and engine.own_server)
    ]
