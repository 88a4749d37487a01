"""A document as one page that needs no network, for light and dark screens, paper and telephones. Only the sliders of a
plan have a script."""

from __future__ import annotations

import re
from functools import cache

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from enginebench.analysis.document import Block, Cell, Document, Figure, Table, Word
from enginebench.analysis.write import phrases
from enginebench.analysis.write.cells import clean, glued, show
from enginebench.analysis.write.chart_table import chart_table
from enginebench.analysis.write.palette import slots_of, variables
from enginebench.analysis.write.sentence import sentence
from enginebench.analysis.write.svg import svg

TABLED = ("load", "pareto")  # charts with their numbers in a table below


def page(document: Document) -> str:
    engines, other_series = _names(document)
    slots = slots_of([*engines, *other_series])
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            document=document,
            answer=sentence(document.answer),
            slots=slots,
            engines={name: slots[name] for name in engines},
            light=variables("light"),
            dark=variables("dark"),
            rows=lambda table: [(_slot(table, row, slots), row) for row in table.rows],
            drawing=lambda figure: Markup(svg(figure, slots)),
            sliders=Markup(msgspec.json.encode(document.sliders).decode().replace("<", "\\u003c")),
        )
    )


def kind(block: Block) -> str:
    """Name the macro that renders a block."""
    return type(block).__name__.lower()


def _names(document: Document) -> tuple[list[str], list[str]]:
    """Return the engines in the order of the candidates, and other series of charts, which need colours too."""
    engines: list[str] = []
    other_series: list[str] = []
    for block in document.blocks:
        if isinstance(block, Table) and block.engines is not None:
            engines += [cell.text for row in block.rows if isinstance(cell := row[block.engines], Word)]
        elif isinstance(block, Figure):
            names = other_series if block.kind == "time" else engines
            names += [series.name for series in block.series]
    return engines, other_series


def _slot(table: Table, row: tuple[Cell, ...], slots: dict[str, int]) -> int | None:
    cell = None if table.engines is None else row[table.engines]
    return slots.get(cell.text) if isinstance(cell, Word) else None


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("enginebench.analysis.write"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"glued": glued, "clean": clean, "code": _code}
    environment.globals |= {
        "phrases": phrases,
        "show": show,
        "kind": kind,
        "chart_table": chart_table,
        "tabled": TABLED,
    }
    return environment


def _code(text: str) -> Markup:
    """Set `what is typed` as code, and keep an option and a short value on one line."""
    marked = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text)))
    option = r"(?<![\w-])--[\w-]+(?:[ =][\w:.,=-]{1,24}(?![\w:.,=-]))?"
    return Markup(re.sub(option, r'<span class="option">\g<0></span>', marked))
