"""A calibration as a document: the load generator's own error at each load."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from enginebench.analysis.answer import CalibrationAnswer
from enginebench.analysis.document import (
    REQUESTS,
    Axis,
    Cell,
    Column,
    Document,
    Figure,
    Number,
    Point,
    Series,
    Table,
    Word,
    count,
)
from enginebench.analysis.frame import SCHEMA
from enginebench.analysis.tested import Tested
from enginebench.records.view import Estimate
from loadtests.harness.run.saved_calibration import LIMIT, Calibration
from loadtests.harness.run.saved_calibration import Cell as Measured

NUMBERS: tuple[tuple[Column, str, str, Callable[[Measured], float | None]], ...] = (
    (Column("TTFT p50"), "ttft.p50", "s", lambda cell: cell.ttft.p50),
    (Column("TTFT p99"), "ttft.p99", "s", lambda cell: cell.ttft.p99),
    (Column("without kernel stamps, p99", rank=3), "ttft_user_space.p99", "s", lambda cell: cell.ttft_user_space.p99),
    (Column("TPOT p99"), "tpot.p99", "share", lambda cell: cell.tpot.p99),
    (Column("E2E p99"), "e2e.p99", "s", lambda cell: cell.e2e.p99),
    (Column("CPU per token", rank=2), "cpu_per_token", "s", lambda cell: cell.cpu_per_token),
    (Column("waited for a core", rank=2), "run_delay", "share", lambda cell: cell.run_delay),
)
"""Columns of errors and costs: heading, name in the frame, unit, value. Errors of TPOT are shares of the true value."""


def document_of(calibration: Calibration) -> Document:
    return Document(
        title="calibration",
        tested=Tested.from_benches((), ("load generator",), calibration.host, calibration.made_at, 1),
        answer=_answer(calibration),
        candidates=_table(calibration),
        figure=_figure(calibration),
        frame=pl.DataFrame(
            [
                {
                    "load": cell.tokens_per_second,
                    "load_unit": "tokens/s",
                    "n": cell.requests,
                    "statistic": cell.condition,
                }
                | {"stage": f"{cell.users}x{cell.rate:g}", "metric": name, "unit": unit, "value": read(cell)}
                for cell in calibration.cells
                for _, name, unit, read in NUMBERS
            ],
            schema=SCHEMA,
        ),
    )


def _answer(calibration: Calibration) -> CalibrationAnswer:
    """Answer by the highest load with an error of at most `LIMIT`; if there is none, by the lightest load."""
    quiet = sorted(calibration.on("quiet"), key=lambda cell: cell.tokens_per_second)
    highest = calibration.highest_load(LIMIT)
    kept = [cell for cell in quiet if highest is not None and cell.tokens_per_second <= highest] or quiet[:1]
    return CalibrationAnswer(max(cell.ttft.p99 for cell in kept), kept[-1].tokens_per_second)


def _table(calibration: Calibration) -> Table:
    loads = (Column("users"), Column("tokens/s for each"), Column("tokens/s"), REQUESTS)
    headings = (Column("machine", text=True), *loads, Column("failed"), *(column for column, *_ in NUMBERS))
    rows: list[tuple[Cell, ...]] = [
        (
            Word(cell.condition),
            count(cell.users),
            Number(Estimate(cell.rate)),
            Number(Estimate(cell.tokens_per_second)),
            count(cell.requests),
            count(cell.failures) if cell.failures else None,
            *(Number(Estimate(read(cell)), unit) for _, _, unit, read in NUMBERS),
        )
        for cell in calibration.cells
    ]
    return Table("errors", "Measured minus true", headings, tuple(rows)).without_empty_columns()


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
        x=Axis("load", "tokens/s"),
        y=Axis("TTFT error p99", "s"),
        series=tuple(series),
    )
