"""The table of stages: a row for each stage and engine, a column for each metric declared for it, with intervals.

Terminal, page and Markdown only set it. What has no value or no interval says why once, below the table.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from enginebench.analysis.compare.engine_runs import EngineRuns, engine_runs_of, since_due
from enginebench.analysis.compare.tables import INFINITE, interval_of
from enginebench.analysis.report.axis import Axis, Place, axis_of
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.formatting import (
    MISSING,
    ShownUnit,
    align,
    column_unit,
    format_count,
    format_error,
    format_share,
    in_words,
    significant,
)
from enginebench.records.metrics import Column, Metric, columns
from enginebench.records.view import Estimate, StageView

NOTES = {
    "answered": "failed: the percentile falls among failed requests; under it, that of the answered requests.",
    "unbounded": "∞: the upper end lies beyond the largest value observed.",
}
REASONS = 2  # of a missing number, that a note lists for a column


@dataclass(frozen=True, slots=True)
class Cell:
    """A number in its column's unit with the ends of its interval. Decimal points of `text` stand in line within the
    column. `answered` is the same percentile of the answered requests, where this one falls among failed ones."""

    estimate: Estimate
    text: str
    low: str | None
    high: str | None
    answered: str | None

    @property
    def spread(self) -> str:
        """`[1.19, 1.28]`"""
        if self.answered is not None:
            return f"answered: {self.answered}"
        return f"[{self.low}, {self.high}]" if self.low is not None else ""

    @property
    def narrow_spread(self) -> str:
        """`1.19–1.28`"""
        if self.answered is not None:
            return f"ok: {self.answered}"
        return f"{self.low}–{self.high}" if self.low is not None else ""

    @property
    def failed(self) -> bool:
        return self.estimate.value == math.inf

    @property
    def why(self) -> str | None:
        """Why there is no value or no interval, where that needs saying."""
        if self.low is not None or self.failed:
            return None
        return None if self.estimate.missing is None else self.estimate.missing.value


@dataclass(frozen=True, slots=True)
class Row:
    """One engine at one stage. Counts are of all its runs together."""

    engine: EngineRuns
    place: Place
    cells: tuple[Cell, ...]

    @property
    def name(self) -> str:
        return self.engine.label

    @property
    def stages(self) -> tuple[StageView, ...]:
        return self.engine.at(self.place.label)

    @property
    def requests(self) -> int:
        return sum(stage.requests for stage in self.stages)

    @property
    def failed(self) -> int:
        return sum(stage.failed for stage in self.stages)

    @property
    def achieved(self) -> str:
        """Requests per second that ended well, the mean of the runs: what an open loop got of what it offered."""
        rate = self.engine.value(self.place.label, "achieved_rate")
        return MISSING if rate is None else significant(rate)

    @property
    def remark(self) -> str:
        """`5 runs, 3 cut off`"""
        cut_off, runs = sum(stage.cut_off for stage in self.stages), len(self.stages)
        parts = [f"{runs} runs"] if runs > 1 else []
        parts += [f"{format_count(cut_off)} cut off"] if cut_off else []
        return ", ".join(parts)

    @property
    def failed_share(self) -> str:
        """Of the requests that were not cut off; the mean of the runs, as all shares are."""
        share = self.engine.mean(lambda stage: stage.value("failure_share"), self.place.label)
        return format_share(share) if self.failed else ""


@dataclass(frozen=True, slots=True)
class StageTable:
    """`headers` are (name, unit) of the columns with estimates; rows stand in the order of stages, then of engines.

    `missing` says why numbers or intervals are missing, and `accuracy` how exact TTFT is, where the load generator was
    calibrated. `open_loop`: some stage had a rate of arrivals.
    """

    axis: Axis
    columns: tuple[Column, ...]
    headers: tuple[tuple[str, str], ...]
    rows: tuple[Row, ...]
    missing: str
    accuracy: str
    open_loop: bool

    @property
    def cells(self) -> list[Cell]:
        return [cell for row in self.rows for cell in row.cells]

    def notes(self, spreads: bool = True) -> list[str]:
        """What stands below the table; `spreads`: it shows the intervals."""
        several = any(len(row.stages) > 1 for row in self.rows)
        of_runs = ", of several runs from the spread between them" if several else ""
        return [
            *([f"Second lines: 95 % intervals{of_runs}."] if spreads else []),
            *([self.missing] if self.missing and spreads else []),
            *([NOTES["answered"]] if any(cell.answered for cell in self.cells) else []),
            *([NOTES["unbounded"]] if spreads and any(cell.high == INFINITE for cell in self.cells) else []),
            *([self.accuracy] if self.accuracy else []),
        ]


def names_of(summaries: Sequence[RunSummary]) -> list[str]:
    """The label of each run, with #1, #2 … where several runs share it."""
    labels = [summary.label for summary in summaries]
    return [
        label if labels.count(label) == 1 else f"{label} #{labels[: index + 1].count(label)}"
        for index, label in enumerate(labels)
    ]


def stage_table(summaries: Sequence[RunSummary]) -> StageTable:
    axis, engines = axis_of(summaries), engine_runs_of(summaries)
    placed = [(place, engine) for place in axis.places for engine in engines if engine.at(place.label)]
    shown = columns("table", since_due(summaries))
    estimates = {column: [engine.column(place.label, column) for place, engine in placed] for column in shown}
    units = {
        column: column_unit(
            column.unit,
            (estimate.value for other in shown if other.of == column.of for estimate in estimates[other]),
        )
        for column in shown
    }
    cells = [
        _cells(estimates[column], [_answered(engine, place.label, column) for place, engine in placed], units[column])
        for column in shown
    ]
    rows = [
        Row(engine, place, of_row) for (place, engine), of_row in zip(placed, zip(*cells, strict=True), strict=True)
    ]
    return StageTable(
        axis=axis,
        columns=shown,
        headers=tuple((column.title, ", ".join(filter(None, (units[column].name, column.clock)))) for column in shown),
        rows=tuple(rows),
        missing=_missing(shown, rows),
        accuracy=_accuracy(summaries),
        open_loop=any(stage.is_open for summary in summaries for stage in summary.stages),
    )


def _answered(engine: EngineRuns, stage: str, column: Column) -> float | None:
    """The same percentile of the answered requests, the mean of the runs."""
    if not isinstance(column.of, Metric):
        return None
    return engine.mean(lambda view: (view.metrics[column.name].answered or {}).get(column.statistic), stage)


def _cells(estimates: Sequence[Estimate], answered: Sequence[float | None], unit: ShownUnit) -> list[Cell]:
    texts = align([MISSING if estimate.value is None else unit.write(estimate.value) for estimate in estimates])
    return [
        Cell(
            estimate,
            text,
            *interval_of(estimate, unit),
            unit.write(survivors) if survivors is not None and estimate.value in (None, math.inf) else None,
        )
        for estimate, text, survivors in zip(estimates, texts, answered, strict=True)
    ]


def _missing(shown: Sequence[Column], rows: Sequence[Row]) -> str:
    """`No interval: TTFT p99 (28 < 368).`: each reason once for a column."""
    sentences = []
    for what, without_value in (("No value", True), ("No interval", False)):
        columns_by_reason: dict[str, list[str]] = {}
        for index, column in enumerate(shown):
            cells = [row.cells[index] for row in rows]
            reasons = [cell.why for cell in cells if cell.why and (cell.estimate.value is None) is without_value]
            distinct = list(dict.fromkeys(reasons))
            if distinct:
                named = ", ".join(distinct[:REASONS]) + (" …" if len(distinct) > REASONS else "")
                columns_by_reason.setdefault(named, []).append(column.title)
        parts = [f"{in_words(titles)} ({reason})" for reason, titles in columns_by_reason.items()]
        sentences += [f"{what}: {'; '.join(parts)}."] if parts else []
    return " ".join(sentences)


def _accuracy(summaries: Sequence[RunSummary]) -> str:
    """`TTFT ± 0.038 ms: …`; past its calibration a run has none."""
    errors = [(name, summary.client_error) for name, summary in zip(names_of(summaries), summaries, strict=True)]
    texts = {name: format_error(error) for name, error in errors if error is not None}
    if not texts:
        return ""
    alike = len(texts) == len(summaries) and len(set(texts.values())) == 1
    error = next(iter(texts.values())) if alike else in_words([f"{text} ({name})" for name, text in texts.items()])
    return f"TTFT {error}: the load generator's own error at p99, as calibrated on its machine."
