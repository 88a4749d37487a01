"""A load generator's reported values next to the true values, as a document."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import polars as pl

from enginebench.analysis.answer import RefereeAnswer
from enginebench.analysis.document import Cell, Column, Document, Number, Style, Table, Word
from enginebench.analysis.frame import SCHEMA, cells
from enginebench.analysis.tested import Tested
from enginebench.records.metrics import (
    ACHIEVED_RATE,
    BY_NAME,
    E2E,
    OUTPUT_TOKENS,
    PERCENTILES,
    QUANTITY_BY_NAME,
    THROUGHPUT,
    TPOT,
    TTFT,
)
from enginebench.records.metrics import Column as Statistic
from enginebench.records.view import Estimate, Missing
from enginebench.studies.referee.observation import Observation


@dataclass(frozen=True, slots=True)
class Row:
    """A number of an observation. Its error is a difference, or a ratio if it is `relative`."""

    key: str
    title: str
    unit: str
    read: Callable[[Observation], Estimate]
    style: Style = "plain"
    relative: bool = False

    def error(self, true: Observation, reported: Observation) -> Estimate:
        truth, report = self.read(true), self.read(reported)
        if truth.value is None or report.value is None or (self.relative and not truth.value):
            return Estimate(None, missing=truth.missing or report.missing or Missing.NOT_OBSERVED)
        return Estimate(report.value / truth.value if self.relative else report.value - truth.value)


def _count(key: str, title: str, read: Callable[[Observation], int | None]) -> Row:
    return Row(key, title, "requests", lambda observation: Estimate(read(observation)), "count")


def _latency(name: str, percentile: str) -> Row:
    column = Statistic(BY_NAME[name], percentile)

    def read(observation: Observation) -> Estimate:
        if observation.answered < round(1 / (1 - PERCENTILES[percentile])):
            return Estimate(None, missing=Missing.FEW_REQUESTS)
        return Estimate(observation.stage.value(name, percentile))

    return Row(column.key, column.title, "s", read)


def _rate(name: str) -> Row:
    column = Statistic(QUANTITY_BY_NAME[name], "value")
    return Row(name, column.full_title, column.unit, lambda o: Estimate(o.stage.value(name)), relative=True)


TTFT_ROWS = (_latency(TTFT, "p99"), _latency(TTFT, "p50"))  # the sentence shows the first that enough requests support
ROWS = (
    _count("requests sent", "requests sent", lambda observation: observation.sent),
    _count("requests answered", "requests answered", lambda observation: observation.answered),
    *reversed(TTFT_ROWS),
    *(_latency(name, percentile) for name in (TPOT, E2E) for percentile in ("p50", "p99")),
    _rate(THROUGHPUT),
    _rate(ACHIEVED_RATE),
    _count("in flight", "most requests in flight", lambda observation: observation.in_flight),
    Row(
        "gap variation",
        "variation of the gaps between requests",
        "",
        lambda o: Estimate(o.gap_variation),
        relative=True,
    ),
)


def document_of(tool: str, exit_code: int, true: Observation, reported: Observation | None, tested: Tested) -> Document:
    columns = (Column("", text=True), Column("true"), Column("reported"), Column("error"))
    return Document(
        title=f"{tool} next to a server of known timing",
        tested=replace(tested, output_tokens=true.stage.value(OUTPUT_TOKENS)),
        answer=_answer(tool, exit_code, true, reported),
        candidates=Table(
            "errors",
            "Reported minus true",
            columns,
            tuple(_cells(row, true, reported) for row in ROWS if row.read(true).value is not None),
        ).without_empty_columns(),
        frame=pl.DataFrame(list(_frame_rows(true, reported)), schema=SCHEMA),
    )


def _answer(tool: str, exit_code: int, true: Observation, reported: Observation | None) -> RefereeAnswer:
    observations = [true] if reported is None else [true, reported]
    few = [row for row in TTFT_ROWS if any(row.read(o).missing is Missing.FEW_REQUESTS for o in observations)]
    row = next((row for row in TTFT_ROWS if row not in few), TTFT_ROWS[-1])
    return RefereeAnswer(
        tool=tool,
        exit_code=exit_code,
        title=row.title,
        true=row.read(true).value or 0.0,
        reported=None if reported is None else row.read(reported).value,
        counted=None if reported is None else reported.answered,
        answered=true.answered,
    )


def _cells(row: Row, true: Observation, reported: Observation | None) -> tuple[Cell, ...]:
    truth = Number(row.read(true), row.unit, row.style)
    if reported is None:
        return Word(row.title), truth, None, None
    error = Number(row.error(true, reported), row.unit, "change" if row.relative else row.style)
    return Word(row.title), truth, Number(row.read(reported), row.unit, row.style), error


def _frame_rows(true: Observation, reported: Observation | None) -> Iterator[dict[str, object]]:
    for row in ROWS:
        yield cells(row.key, "true", row.unit, row.read(true))
        if reported is not None:
            yield cells(row.key, "reported", row.unit, row.read(reported))
            name, unit = ("ratio", "") if row.relative else ("error", row.unit)
            yield cells(row.key, name, unit, row.error(true, reported))
