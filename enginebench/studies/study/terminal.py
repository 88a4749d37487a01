"""A study on the terminal: its progress, and the cell being measured."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from typing import get_args

from enginebench.records.formatting import counted
from enginebench.settings.console import small_table, stdout
from enginebench.studies.study.folder import CellOutcome, CellState, StudyFolder
from enginebench.studies.study.grid import Cell
from loadtests.harness.run.duration import rounded_time

OUTCOMES = (*get_args(CellOutcome), "left")


def show(study: StudyFolder) -> None:
    """Print a row for each part and model, the reasons of skipped or failed cells, and one sentence."""
    console = stdout()
    console.print(f"{study.grid.title}: {study.path}", style="bold", soft_wrap=True)
    table = small_table("part and model", *OUTCOMES, "spent", "expected")
    for column in table.columns[1:]:
        column.justify = "right"
    for part in study.grid.parts:
        for model in study.grid.models:
            if states := study.select(part.name, model.label):
                count = _count(states)
                counts = [str(count[outcome] or "") for outcome in OUTCOMES]
                times = [rounded_time(round(seconds)) if seconds else "" for seconds in (_spent(states), _left(states))]
                table.add_row(f"{part.name} {model.label}", *counts, *times)
    console.print(table)
    for outcome in ("skipped", "failed"):
        engines: dict[str, dict[str, None]] = {}
        for state in study.with_outcome(outcome):
            engines.setdefault(state.reason or "no reason was given", {})[state.cell.engine] = None
        for reason, names in engines.items():
            console.print(f"{outcome}: {', '.join(names)}: {reason}", soft_wrap=True)
    console.print(summary(study), soft_wrap=True)


def summary(study: StudyFolder) -> str:
    """`34 of 60 cells done, 20 skipped, 0 failed; 6 left (about 4 min); 51 min spent.`"""
    count, seconds = _count(study.cells), round(_spent(study.cells))
    text = f"{count['done']} of {counted(len(study.cells), 'cell')} done, {count['skipped']} skipped"
    text += f", {count['failed']} failed"
    text += f"; {count['left']} left (about {rounded_time(round(_left(study.cells)))})" if count["left"] else ""
    return f"{text}; {rounded_time(seconds)} spent." if seconds else f"{text}."


def cell_title(study: StudyFolder, cell: Cell, deadline: float) -> str:
    """`12 of 135, about 34 min left, users.smollm2-135m.vllm.1`"""
    ended = [state for state in study.cells if state.record is not None and state.cell != cell]
    parts = [f"{len(ended) + 1} of {len(study.cells)}", f"about {rounded_time(round(_left(study.cells)))} left"]
    if math.isfinite(deadline):
        parts.append(f"budget {rounded_time(round(max(0.0, deadline - time.monotonic())))}")
    return ", ".join([*parts, cell.id])


def _count(states: Sequence[CellState]) -> Counter[str]:
    return Counter(state.outcome for state in states)


def _spent(states: Sequence[CellState]) -> float:
    return sum(state.seconds or 0.0 for state in states)


def _left(states: Sequence[CellState]) -> float:
    return sum(state.expected for state in states if state.outcome == "left")
