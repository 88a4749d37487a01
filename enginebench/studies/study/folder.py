"""A study on disk:

    study.json        the question (`StudyFacts`): the resolved grid, seed, command, commit
    sittings.jsonl    a `Sitting` each time that the study was started or resumed: when, where, with which versions
    cells.jsonl       a `CellRecord` as each cell ends; on disk before the next one begins
    runs/<cell>/      the run of a load cell, with the records of any run
    bench/<cell>.json the document of a bench cell
    logs/             the output of servers and benches
    running/          the cell that is being measured
    disturbed/        runs that differed from their neighbours and were repeated once; not in the report's numbers
    interrupted/      remains of cells that were interrupted, or failed and were run again
    report.html …     derived from the above, and rebuildable

A cell without a line has not ended and is run again. If a cell has several lines, the last one counts. `done` is final
unless `disturbed` follows: then the cell has not ended.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Literal

import msgspec
from msgspec import Struct

from enginebench.records.files import NOT_UNDERSTOOD, read_document, read_lines, write_inside
from enginebench.records.plain_text import is_file_name
from enginebench.records.run import HOST, as_typed
from enginebench.records.slo import parse_objectives
from enginebench.settings.schema import UserMistake
from enginebench.studies.study.grid import Cell, Chosen, Grid, cells_of
from enginebench.studies.study.grid_file import check_grid

SCHEMA = 1
STUDY, SITTINGS, CELLS = "study.json", "sittings.jsonl", "cells.jsonl"
RUNS, BENCH, LOGS, DISTURBED = "runs", "bench", "logs", "disturbed"
RUNNING, INTERRUPTED, LOCK = "running", "interrupted", "study.lock"
CellOutcome = Literal["done", "skipped", "failed"]


class NotAStudy(UserMistake):
    """A folder holds no study, or a study of another version. One sentence; exit code 2."""


class StudyFacts(Struct, frozen=True, kw_only=True):
    """The question, in `study.json`."""

    name: str
    variants: tuple[str, ...]  # variants in the grid's file that were applied: cpu, quick, gpu_quick
    chosen: Chosen = Chosen()  # rows of the file; `grid` has only these
    grid: Grid
    command: tuple[str, ...]
    commit: str | None
    started_at: str  # ISO 8601, UTC
    host: Mapping[str, Any]
    schema: int = SCHEMA


class Sitting(Struct, frozen=True, kw_only=True):
    """A period in which the study was running. `gpus` are names, drivers and power limits; empty without GPUs."""

    started_at: str  # ISO 8601, UTC
    command: tuple[str, ...]
    commit: str | None
    host: Mapping[str, Any]
    versions: Mapping[str, str]
    gpus: tuple[Mapping[str, Any], ...] = ()
    image: str | None = None  # ENGINEBENCH_IMAGE: the digest of the container's image


class CellRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a cell ended. `seconds` include loading; `path` is its run or document, relative to the study's folder.

    `reason` is a sentence: why the cell was skipped, failed or was repeated, or which part of a done cell is missing.
    """

    cell: str
    outcome: CellOutcome | Literal["disturbed"]
    started_at: str
    seconds: float
    reason: str | None = None
    path: str | None = None


class CellState(Struct, frozen=True):
    """A cell of the grid and how it ended; `record` is `None` before that."""

    cell: Cell
    record: CellRecord | None
    expected: float  # seconds

    @property
    def outcome(self) -> CellOutcome | Literal["left"]:
        return "left" if self.record is None or self.record.outcome == "disturbed" else self.record.outcome

    @property
    def reason(self) -> str | None:
        return None if self.record is None else self.record.reason

    @property
    def seconds(self) -> float | None:
        return None if self.record is None else self.record.seconds


class StudyFolder(Struct, frozen=True):
    """Everything known about a study. `cells` are in the order in which they are run."""

    path: Path
    facts: StudyFacts
    sittings: tuple[Sitting, ...]
    cells: tuple[CellState, ...]
    disturbed: Mapping[str, CellRecord] = {}  # runs that were repeated, by cell

    @property
    def grid(self) -> Grid:
        return self.facts.grid

    def select(self, part: str, model: str) -> list[CellState]:
        return [state for state in self.cells if (state.cell.part, state.cell.model) == (part, model)]

    def with_outcome(self, *outcomes: str) -> list[CellState]:
        return [state for state in self.cells if state.outcome in outcomes]

    def result(self, state: CellState) -> Path | None:
        """Return a cell's run folder or bench document; `None` if it has none."""
        if state.record is None or state.record.path is None:
            return None
        return self.path / state.record.path


def load_study(folder: Path) -> StudyFolder:
    """Read a study. Raises `NotAStudy` if the folder holds no readable one."""
    try:
        facts = _checked(folder / STUDY, read_document(folder / STUDY, StudyFacts))
    except (FileNotFoundError, NotADirectoryError):
        raise NotAStudy(f"{folder} is not the folder of a study: it has no {STUDY}.") from None
    except ValueError as error:
        raise NotAStudy(str(error)) from None
    records, disturbed = _read_records(folder)
    cells = cells_of(facts.grid)
    expected = _expected(facts.grid, cells, records)
    states = tuple(CellState(cell, records.get(cell.id), expected[cell.id]) for cell in cells)
    return StudyFolder(folder, facts, tuple(_lines(folder / SITTINGS, Sitting)), states, disturbed)


def _checked(path: Path, facts: StudyFacts) -> StudyFacts:
    """Raise `ValueError` for another version, and for values that no grid's file could hold."""
    if facts.schema != SCHEMA:
        raise ValueError(f"{path.parent} is a study of schema {facts.schema}; this version reads {SCHEMA}.")
    if not is_file_name(facts.name):
        raise ValueError(NOT_UNDERSTOOD.format(path, f"`{facts.name}` is no name of a study"))
    check_grid(path, facts.grid)
    try:
        parse_objectives(facts.grid.slo)
    except ValueError as error:
        raise ValueError(NOT_UNDERSTOOD.format(path, error)) from None
    return msgspec.structs.replace(facts, host=as_typed(facts.host, HOST))


def holds_results(folder: Path) -> bool:
    return any((folder / name).exists() for name in (RUNS, BENCH))


def _read_records(folder: Path) -> tuple[dict[str, CellRecord], dict[str, CellRecord]]:
    """Return the last records and the `disturbed` records, each by cell, without paths that lead out of the folder."""
    last: dict[str, CellRecord] = {}
    disturbed: dict[str, CellRecord] = {}
    for record in _lines(folder / CELLS, CellRecord):
        path = Path(record.path or "")
        if path.is_absolute() or ".." in path.parts:
            continue
        if record.outcome == "disturbed":
            disturbed[record.cell] = record
            last.pop(record.cell, None)
        elif record.cell not in last or last[record.cell].outcome != "done":
            last[record.cell] = record
    return last, disturbed


def write_facts(folder: Path, facts: StudyFacts) -> None:
    """Write `study.json`. Raises `UserMistake` for a grid that could not be read again."""
    check_grid(folder / STUDY, facts.grid)
    content = msgspec.json.format(msgspec.json.encode(facts), indent=2) + b"\n"
    write_inside(folder, STUDY, content, synced=True)


def set_repeats(folder: Path, repeats: int) -> None:
    """Change the repeats. Raises `UserMistake` for fewer than were begun: no measurement is ever left out."""
    study = load_study(folder)
    cells = [
        state.cell for state in study.cells if state.outcome in {"done", "failed"} or state.cell.id in study.disturbed
    ]
    begun = max((cell.repeat + 1 for cell in cells if study.grid.part(cell.part).repeats is None), default=0)
    if repeats < begun:
        raise UserMistake(f"{folder} has {begun} repeats already: give --repeat {begun} or more.")
    grid = msgspec.structs.replace(study.grid, repeats=repeats)
    write_facts(folder, msgspec.structs.replace(study.facts, grid=grid))


def append_line(path: Path, line: Struct) -> None:
    """Write a line to disk, after ending a line that a power cut left unfinished."""
    written = msgspec.json.encode(line) + b"\n"
    with path.open("ab+") as file:
        if file.tell() and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n":
            written = b"\n" + written
        file.write(written)
        file.flush()
        os.fsync(file.fileno())


def _expected(grid: Grid, cells: Sequence[Cell], records: Mapping[str, CellRecord]) -> dict[str, float]:
    """Estimate from done cells of the same part and model, preferably of the same engine, else from the grid."""
    done = [(cell, records[cell.id]) for cell in cells if cell.id in records]
    expected = {}
    for cell in cells:
        like = [
            (past.engine, record.seconds)
            for past, record in done
            if record.outcome == "done" and (past.part, past.model) == (cell.part, cell.model)
        ]
        own = [seconds for engine, seconds in like if engine == cell.engine]
        expected[cell.id] = median(own or [seconds for _, seconds in like] or [grid.part(cell.part).seconds])
    return expected


def _lines(path: Path, kind: type[Any]) -> Iterator[Any]:
    return read_lines(path, kind) if path.is_file() else iter(())
