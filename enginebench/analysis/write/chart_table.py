"""The numbers of a chart as a table."""

from __future__ import annotations

from enginebench.analysis.document import Cell, Column, Figure, Number, Table, Word
from enginebench.analysis.write.cells import place_text
from enginebench.records.view import Estimate


def chart_table(figure: Figure) -> Table:
    columns = (Column("", text=True), Column(figure.x.title, figure.x.unit), Column(figure.y.title, figure.y.unit))
    rows: list[tuple[Cell, ...]] = []
    for series in figure.series:
        for point in series.points:
            place = (
                Word(place_text(figure.x, point.x))
                if figure.kind == "load"
                else Number(Estimate(point.x), figure.x.unit)
            )
            value = Number(Estimate(point.y, point.low, point.high), figure.y.unit)
            rows.append((Word(series.name), place, value))
    return Table(f"{figure.key}-numbers", "", columns, tuple(rows), engines=0)
