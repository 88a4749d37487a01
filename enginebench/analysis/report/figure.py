"""A figure of a page: what it shows, the chart, how to read it, and its numbers as a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from enginebench.analysis.compare.capacity import SloCapacity
from enginebench.analysis.compare.comparison import Comparison
from enginebench.analysis.compare.engine_runs import EngineRuns, by_load, engine_runs_of
from enginebench.analysis.report.axis import Axis, Place
from enginebench.analysis.report.charts import Chart, Row, Styles
from enginebench.analysis.report.palette import styles_of
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.formatting import format_count, significant
from enginebench.records.metrics import PERCENTILES, Column, Metric
from enginebench.records.slo import Objective, of_tier

HIGHEST = max(PERCENTILES.values())


@dataclass(frozen=True, slots=True)
class Number:
    """A value, and as it is printed."""

    value: float | None
    text: str


@dataclass(frozen=True, slots=True)
class Figure:
    """`rows` hold texts and numbers under `headers`. `legend` names engines, where lines and marks are of several."""

    key: str
    title: str
    note: str
    chart: Chart
    headers: tuple[str, ...]
    rows: tuple[tuple[str | Number, ...], ...]
    legend: tuple[str, ...] = ()


@dataclass(frozen=True)
class FigureSource:
    """What all figures of a page are made of: the runs of each engine, its style, and the axis of the stages.

    `loads`: the stages differ in nothing but their load. `capacities` are the engines' within the SLO.
    """

    engines: tuple[EngineRuns, ...]
    styles: Styles
    axis: Axis
    loads: bool
    capacities: tuple[SloCapacity, ...]

    @staticmethod
    def of(summaries: Sequence[RunSummary], comparison: Comparison, axis: Axis) -> FigureSource:
        styles = styles_of(summary.label for summary in summaries)
        loads = by_load(summaries)
        return FigureSource(engine_runs_of(summaries), styles, axis, loads, comparison.capacities if loads else ())

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.styles)

    @property
    def measured(self) -> list[tuple[EngineRuns, Place]]:
        """Each engine at each stage that it has."""
        return [(engine, place) for engine in self.engines for place in self.axis.places if engine.at(place.label)]

    def limits(self, column: Column) -> list[Objective]:
        """The objectives that are met where the column's percentile is within their limit, from whichever instant the
        metric is measured; those of the first tier, to which the capacities belong."""
        if not isinstance(column.of, Metric):
            return []
        of_each = [of_tier(engine.runs[0].objectives) for engine in self.engines]
        objectives = dict.fromkeys(objective for objectives in of_each for objective in objectives)
        names, q = {column.of.name, column.of.since_due}, PERCENTILES[column.statistic]
        return [each for each in objectives if each.column in names and q >= min(each.q, HIGHEST)]


def figure(
    key: str,
    title: str,
    note: str,
    chart: Chart,
    fields: Mapping[str, str],
    rows: Iterable[Row],
    legend: Iterable[str] = (),
) -> Figure:
    """`fields` are the headers of the table, and which field of the rows stands under each."""
    cells = tuple(tuple(_cell(row[field]) for field in fields.values()) for row in rows)
    return Figure(key, title, note, chart, tuple(fields), cells, tuple(legend))


def _cell(value: str | float | None) -> str | Number:
    if isinstance(value, str):
        return value
    return Number(value, format_count(value) if value is None or isinstance(value, int) else significant(value))
