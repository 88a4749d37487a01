"""A calibration as a document: the load generator's own error at each load."""

from __future__ import annotations

import polars as pl

from enginebench.analysis.answer import CalibrationAnswer
from enginebench.analysis.document import Axis, Cell, Column, Document, Figure, Number, Point, Series, Table, Word
from enginebench.analysis.frame import SCHEMA
from enginebench.analysis.tested import Tested
from enginebench.records.view import Estimate
from loadtests.harness.run.calibration import LIMIT, Calibration
from loadtests.harness.run.calibration import Cell as Measured

NUMBERS: tuple[tuple[Column, str, str], ...] = (
    (Column("TTFT p50"), "ttft.p50", "s"),
    (Column("TTFT p99"), "ttft.p99", "s"),
    (Column("without kernel stamps, p99", rank=3), "ttft_user_space.p99", "s"),
    (Column("TPOT p99"), "tpot.p99", "share"),
    (Column("E2E p99"), "e2e.p99", "s"),
    (Column("CPU per token", rank=2), "cpu_per_token", "s"),
    (Column("waited for a core", rank=2), "run_delay", "share"),
)
"""Columns of errors and costs: heading, path in a cell, unit. Errors of TPOT are shares of the true value."""


def document_of(calibration: Calibration) -> Document:
    return Document(
        title="calibration",
        tested=Tested.of_benches((), ("load generator",), calibration.host, calibration.made_at, 1),
        objectives=(),
        answer=_answer(calibration),
        candidates=_table(calibration),
        figure=_figure(calibration),
        next=None,
        warnings=(),
        sections=(),
        frame=pl.DataFrame(
            [
                {"stage": _load(cell), "load": cell.tokens_per_second, "load_unit": "tokens/s", "n": cell.requests}
                | {"metric": path, "statistic": cell.condition, "unit": unit, "value": _value(cell, path)}
                for cell in calibration.cells
                for _, path, unit in NUMBERS
            ],
            schema=SCHEMA,
        ),
    )


def _answer(calibration: Calibration) -> CalibrationAnswer:
    """Up to the highest load with an error of at most `LIMIT`; if there is none, at the lightest load."""
    quiet = sorted(calibration.on("quiet"), key=lambda cell: cell.tokens_per_second)
    highest = calibration.highest_load(LIMIT)
    kept = [cell for cell in quiet if highest is not None and cell.tokens_per_second <= highest] or quiet[:1]
    return CalibrationAnswer(max(cell.ttft.p99 for cell in kept), kept[-1].tokens_per_second)


def _table(calibration: Calibration) -> Table:
    headings = (Column("load", text=True), Column("machine", text=True), Column("tokens/s"), Column("requests"))
    rows: list[tuple[Cell, ...]] = [
        (
            Word(_load(cell)),
            Word(cell.condition),
            Number(Estimate(cell.tokens_per_second)),
            Number(Estimate(float(cell.requests)), style="count"),
            Number(Estimate(float(cell.failures)), style="count") if cell.failures else None,
            *(Number(Estimate(_value(cell, path)), unit) for _, path, unit in NUMBERS),
        )
        for cell in calibration.cells
    ]
    columns = (*headings, Column("failed"), *(column for column, _, _ in NUMBERS))
    return Table("errors", "Measured minus true", columns, tuple(rows)).without_empty_columns()


def _figure(calibration: Calibration) -> Figure:
    series = [
        Series(f"{condition} machine", tuple(Point(cell.tokens_per_second, cell.ttft.p99) for cell in cells))
        for condition in ("quiet", "busy")
        if (cells := sorted(calibration.on(condition), key=lambda cell: cell.tokens_per_second))
    ]
    return Figure(
        key="errors",
        title="TTFT error p99",
        kind="load",
        x=Axis("load", "tokens/s", logarithmic=True),
        y=Axis("TTFT error p99", "s", logarithmic=True),
        series=tuple(series),
    )


def _load(cell: Measured) -> str:
    return f"{cell.users} users × {cell.rate:g} tokens/s"


def _value(cell: Measured, path: str) -> float | None:
    value: object = cell
    for name in path.split("."):
        value = getattr(value, name)
    return value if isinstance(value, float) else None
