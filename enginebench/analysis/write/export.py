"""A document in a file, by its suffix, and as one JSON document: values, not sentences."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import polars as pl

from enginebench.analysis.document import Cell, Document, Figure, Number, Table, Word
from enginebench.analysis.summary.as_document import as_document
from enginebench.analysis.verdict.capacity import Capacity
from enginebench.analysis.verdict.slo_verdict import SloVerdict
from enginebench.analysis.write.html import page
from enginebench.analysis.write.junit import junit
from enginebench.analysis.write.markdown import markdown
from enginebench.analysis.write.phrases import title
from enginebench.analysis.write.svg import svg
from enginebench.records.files import place_inside, write_atomically, write_inside
from enginebench.records.metrics import Column as MetricColumn
from enginebench.records.metrics import Quantity
from enginebench.records.slo import Objective
from enginebench.settings.schema import UserMistake

CAPACITY = ("engine", "unit", "load", "beyond", "confirmed", "certified", "estimate")  # the fields that JSON has
VERDICT = ("status", "confirmed", "share", "n", "runs", "agreeing", "missing")
FORMULA = r"^[=+\-@\t\r]"  # a spreadsheet would run such text


def write(document: Document, path: Path, inside: bool = False) -> None:
    """Write to a file that the user named, or `inside` a folder that may come from elsewhere, where links are replaced.

    Raises `UserMistake` if there is no chart to write, `OSError` if the file cannot be written.
    """
    if path.suffix == ".md":
        _write_markdown(document, path, inside)
    else:
        _put(path, WRITERS[path.suffix](document), inside)


def _put(path: Path, content: str | bytes, inside: bool) -> None:
    if inside:
        write_inside(path.parent, path.name, content)
    else:
        write_atomically(path, content)


def as_json(document: Document) -> str:
    """Write everything but the charts, with the rows of the frame."""
    answer = plain(document.answer)
    whole = {
        "title": title(document),
        "tested": plain(document.tested),
        "objectives": [str(objective) for objective in document.objectives],
        "answer": {"kind": type(document.answer).__name__} | (answer if isinstance(answer, dict) else {"why": answer}),
        "candidates": [] if document.candidates is None else table_rows(document.candidates),
        "warnings": plain(document.warnings),
        "next": plain(document.next),
        "exit_code": document.exit_code,
        "sections": [
            {
                "key": section.key,
                "title": section.title,
                "tables": [
                    {"title": block.title, "rows": table_rows(block)}
                    for block in section.blocks
                    if isinstance(block, Table)
                ],
            }
            for section in document.sections
        ],
        "rows": document.frame.to_dicts(),
    }
    return msgspec.json.encode(whole).decode() + "\n"


def table_rows(table: Table) -> list[dict[str, Any]]:
    """Return each row as an object whose names are the headings."""
    return [
        {column.heading: cell_value(cell) for column, cell in zip(table.columns, row, strict=True)}
        for row in table.rows
    ]


def cell_value(cell: Cell) -> Any:
    if isinstance(cell, Word):
        return cell.text
    if isinstance(cell, Number):
        value = plain(cell.estimate.finite) | {"unit": cell.unit, "style": cell.style}
        confirmed = {} if not cell.approximate else {"confirmed": False}
        significant = {} if cell.significant is None else {"significant": cell.significant}
        value |= {"answered": cell.answered, "over": cell.over or None, "simulated": cell.simulated}
        return {name: part for name, part in value.items() if part is not None} | confirmed | significant
    return plain(cell)


def plain(value: Any) -> Any:
    return as_document(value, _shortened)


def _shortened(value: Any) -> Any:
    """Replace objects by their name or text, if any, and a verdict by the fields that a reader needs."""
    match value:
        case Capacity():
            verdicts = [{"stage": v.stage, "load": v.load} | plain(v.slo) for v in value.verdicts]
            return {name: getattr(value, name) for name in CAPACITY} | {"verdicts": verdicts}
        case SloVerdict():
            return {name: getattr(value, name) for name in VERDICT}
        case Objective():
            return str(value)
        case MetricColumn():
            return value.key
        case Quantity():
            return value.name
        case datetime():
            return value.isoformat()
    return value


def csv(frame: pl.DataFrame) -> str:
    """Put an apostrophe before text that a spreadsheet would read as a formula."""
    text = pl.col(pl.String)
    return frame.with_columns(
        pl.when(text.str.contains(FORMULA)).then(pl.lit("'") + text).otherwise(text).name.keep()
    ).write_csv()


def _parquet(document: Document) -> bytes:
    buffer = BytesIO()
    document.frame.write_parquet(buffer)
    return buffer.getvalue()


def _svg(document: Document) -> str:
    if document.figure is None:
        raise UserMistake("there is no chart: too few loads were measured.")
    return svg(document.figure, standalone=True)


def _write_markdown(document: Document, path: Path, inside: bool) -> None:
    """Write the charts into a folder next to the file. A pipe gets none."""
    if path.exists() and not path.is_file():
        write_atomically(path, markdown(document))
        return
    pictures: dict[str, str] = {}
    for figure in (block for block in document.blocks if isinstance(block, Figure)):
        key = re.sub(r"[^A-Za-z0-9_.-]+", "-", figure.key)  # may contain an engine's label, with any characters
        name = f"{path.stem}-charts/{key}.svg"
        if quote(name) in pictures.values():
            name = name.replace(".svg", f"-{len(pictures)}.svg")
        place = place_inside(path.parent, name) if inside else path.parent / name
        place.parent.mkdir(exist_ok=True)
        _put(place, svg(figure, standalone=True), inside)
        pictures[figure.key] = quote(name)
    _put(path, markdown(document, pictures), inside)


WRITERS: dict[str, Callable[[Document], str | bytes]] = {
    ".html": page,
    ".md": markdown,
    ".json": as_json,
    ".csv": lambda document: csv(document.frame),
    ".parquet": _parquet,
    ".svg": _svg,
    ".xml": junit,
}
"""The writers by the file's suffix; `.xml` is JUnit's format."""
