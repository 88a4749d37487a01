"""The numbers of a chart as a table, and all charts of a document."""

from __future__ import annotations

import math

from enginebench.analysis.document import Block, Cell, Column, Document, Figure, Number, Table, Word
from enginebench.analysis.write.cells import load_number
from enginebench.records.view import Estimate


def figures(document: Document) -> tuple[Figure, ...]:
    blocks: list[Block | None] = [document.figure]
    blocks += [block for section in document.sections for block in section.blocks]
    return tuple(block for block in blocks if isinstance(block, Figure))


def numbers(figure: Figure) -> Table:
    """The numbers of a chart as a table."""
    columns = (Column("", text=True), Column(figure.x.title, figure.x.unit), Column(figure.y.title, figure.y.unit))
    rows: list[tuple[Cell, ...]] = []
    for series in figure.series:
        for point in series.points:
            estimate = Estimate(math.inf if point.failed else point.y, point.low, point.high)
            place = Word(load_number(point.x)) if figure.kind == "load" else Number(Estimate(point.x), figure.x.unit)
            rows.append((Word(series.name), place, Number(estimate, figure.y.unit)))
    return Table(f"{figure.key}-numbers", "", columns, tuple(rows), engines=0)
