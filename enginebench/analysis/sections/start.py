"""The time from the launch of each server to its first answer, by phase."""

from __future__ import annotations

from enginebench.analysis.answer import StartAnswer
from enginebench.analysis.document import ENGINE, Cell, Column, Number, Section, Table, Word
from enginebench.analysis.frame import Frame
from enginebench.records.metrics import COLD_START
from enginebench.records.run import START_PHASES

SCENARIO = "cold_start"


def start(frame: Frame) -> Section:
    """Return the section, without the table if that is on the first screen."""
    table = None if frame.tested.scenario == SCENARIO else starts(frame)
    return Section("start", "Cold start", () if table is None else (table,), folded=True)


def starts(frame: Frame) -> Table | None:
    """Show the cold start of each engine and its phases; `None` if no server was started for its run."""
    rows: list[tuple[Cell, ...]] = []
    for engine in frame.engines:
        total = engine.start(COLD_START)
        if total.value is None:
            continue
        uncached = {run.uncached for run in engine.runs}
        cells: list[Cell] = [Word(engine.label), Word("cold" if uncached == {True} else "as it was")]
        cells.append(Number(total, "s"))
        phases = [engine.start(f"start_{phase}") for phase in START_PHASES]
        cells += [None if phase.value is None else Number(phase, "s") for phase in phases]
        rows.append(tuple(cells))
    if not rows:
        return None
    titles = (Column(title) for title in START_PHASES.values())
    headings = (ENGINE, Column("file cache", text=True, rank=1), Column("cold start"), *titles)
    return Table("start", "From the launch to the first answer", headings, tuple(rows), 0).without_empty_columns()


def answer_of_start(frame: Frame) -> StartAnswer:
    starts = {engine.label: engine.start(COLD_START).value for engine in frame.engines}
    observed = [(name, seconds) for name, seconds in starts.items() if seconds is not None]
    return StartAnswer(tuple(sorted(observed, key=lambda start: start[1])))
