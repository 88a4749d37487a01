"""The checks of a gate as a table, and its answer."""

from __future__ import annotations

import math
from collections.abc import Sequence

import polars as pl

from enginebench.analysis.answer import GateAnswer
from enginebench.analysis.document import (
    ENGINE,
    Cell,
    Column,
    Document,
    Number,
    Section,
    Table,
    Tone,
    Warning,
    Word,
    count,
    p_value,
)
from enginebench.analysis.frame import SCHEMA, check_rows
from enginebench.analysis.tested import Tested
from enginebench.analysis.verdict.gate import Check, Gate, Result

KEY = "checks"
TONES = {
    Result.REGRESSION: Tone.BAD,
    Result.MISSING: Tone.BAD,
    Result.WARNING: Tone.CAUTION,
    Result.UNCLEAR: Tone.CAUTION,
    Result.OK: Tone.PLAIN,
}
COLUMNS = (
    Column("result", text=True),
    ENGINE,
    Column("stage", text=True),
    Column("metric", text=True),
    Column("baseline", rank=1),
    Column("now", rank=1),
    Column("change"),
    Column("p", rank=2),
)


def gate_document(gate: Gate, tested: Tested, warnings: Sequence[Warning] = ()) -> Document:
    """Show the checks that did not pass first, then all checks."""
    worse = table("worse", [check for check in gate.checks if check.result is not Result.OK])
    return Document(
        title="Gate",
        tested=tested,
        answer=answer(gate),
        candidates=worse if worse.rows else None,
        warnings=tuple(warnings),
        sections=(Section(KEY, "All checks", (table(KEY, gate.checks),), folded=True),),
        frame=pl.DataFrame([row for check in gate.checks for row in check_rows(check)], schema=SCHEMA),
        exit_code=gate.exit_code,
    )


def answer(gate: Gate) -> GateAnswer:
    return GateAnswer(
        passed=gate.exit_code == 0,
        limit=gate.limit,
        regressions=gate.regressions,
        checks=len(gate.checks),
        unclear=gate.count(Result.UNCLEAR),
        warnings=gate.count(Result.WARNING),
        missing=gate.count(Result.MISSING),
        runs=gate.runs,
    )


def table(key: str, checks: Sequence[Check]) -> Table:
    return Table(key, "Checks", COLUMNS, tuple(map(_row, checks)))


def _row(check: Check) -> tuple[Cell, ...]:
    column = check.column
    names = (Word(check.result.value, TONES[check.result]), Word(check.engine), Word(check.stage))
    if column is None:  # the check compares numbers of runs
        return (*names, Word("runs"), count(check.baseline.n), count(check.now.n), None, None)
    change: Cell = Number(check.change, "" if column.relative else column.unit, "change", TONES[check.result])
    if check.baseline.value == 0 and math.isinf(check.change.value or 0.0):
        change = Word("up from 0", TONES[check.result])
    numbers = (Number(check.baseline, column.unit), Number(check.now, column.unit))
    return (*names, Word(column.full_title), *numbers, change, p_value(check.p))
