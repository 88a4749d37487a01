"""A document as Markdown: for a pull request, a ticket or a wiki."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from html import escape

from enginebench.analysis.document import Block, Cell, Code, Document, Figure, Number, Table, Warning, Word
from enginebench.analysis.write import phrases
from enginebench.analysis.write.cells import clean, show
from enginebench.analysis.write.chart_table import chart_table
from enginebench.analysis.write.sentence import sentence

MAX_POINTS = 40  # per chart whose numbers replace its picture
_special = re.compile(r"[\\`*_\[\]|<>#~]|(?<=\w):(?=//)|(?<=www)\.|&(?=#?\w+;)")


def markdown(document: Document, pictures: Mapping[str, str] | None = None) -> str:
    """Write a document. `pictures` are the files of the charts by key; without a file, a chart becomes a table."""
    pictures = pictures or {}
    tested, slo = phrases.tested_line(document.tested), phrases.slo_line(document.objectives)
    parts = [f"# {escaped(phrases.title(document))}", f"**{escaped(sentence(document.answer))}**"]
    parts.append("  \n".join([f"Tested: {escaped(tested)}", *([f"SLO: {escaped(slo)}"] if slo else [])]))
    parts += [] if document.candidates is None else [table(document.candidates)]
    parts.append(escaped(phrases.legend_line(phrases.legend(document))))
    parts += [] if document.figure is None else _block(document.figure, pictures)
    if document.next is not None:
        parts.append(f"**{phrases.next_title(document.next)}:** {escaped(phrases.next_line(document.next))}")
        parts += [_code([phrases.next_command(document.next)])] if document.next.command else []
    if document.warnings:
        parts.append(f"**{phrases.warnings_title(document.warnings, len(document.warnings))}**")
        parts.append("\n".join(map(_warning, document.warnings)))
    for section in document.sections:
        heading = f"### {escaped(section.title)}"  # a table with the section's title has no heading
        blocks = [part for block in section.blocks for part in _block(block, pictures) if part != heading]
        if section.folded:
            parts += [f"<details><summary>{escape(clean(section.title), quote=False)}</summary>", *blocks, "</details>"]
        else:
            parts += [f"## {escaped(section.title)}", *blocks]
    parts.append(escaped(phrases.legend_line(phrases.legend_of_sections(document))))
    return "\n\n".join(filter(None, parts)) + "\n"


def table(block: Table) -> str:
    """Write a table, with intervals after their numbers."""
    block = block.without_empty_columns()
    headings = [escaped(column.heading) for column in block.columns]
    sides = [":---" if column.text else "---:" for column in block.columns]
    rows = [[_line(cell) for cell in row] for row in block.rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (headings, sides, *rows))


def _line(cell: Cell) -> str:
    if isinstance(cell, Word | Warning):
        return escaped(show(cell).line)
    return show(replace(cell, over=_escape(cell.over)) if isinstance(cell, Number) and cell.over else cell).line


def escaped(text: str) -> str:
    """Escape Markdown, links, tags and mentions: labels may hold anything."""
    return _escape(clean(text))


def _escape(text: str) -> str:
    return _special.sub(r"\\\g<0>", text).replace("@", "@\u2060")


def _warning(warning: Warning) -> str:
    evidence, remedy = phrases.warning_texts(warning)
    return f"- **{warning.severity}** {_typed(evidence)}{f' → {_typed(remedy)}' if remedy else ''}"


def _typed(text: str) -> str:
    """Escape all but code in backticks."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return escaped(text)
    return "".join(f"`{part}`" if k % 2 else _escape(part) for k, part in enumerate(parts))


def _block(block: Block, pictures: Mapping[str, str]) -> list[str]:
    match block:
        case Table():
            return [f"### {escaped(block.title)}" if block.title else "", table(block)]
        case Figure():
            return _figure(block, pictures)
        case Code():
            return [_code(block.lines)]


def _figure(figure: Figure, pictures: Mapping[str, str]) -> list[str]:
    if figure.key in pictures:
        return [f"![{escaped(figure.title)}]({pictures[figure.key]})"]
    tabled = chart_table(figure)
    return [f"**{escaped(figure.title)}**", table(tabled)] if 0 < len(tabled.rows) <= MAX_POINTS else []


def _code(lines: tuple[str, ...] | list[str]) -> str:
    """Fence the lines by more backticks than any of them has."""
    text = "\n".join(map(clean, lines))
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall(r"`{3,}", text))])
    return f"{fence}sh\n{text}\n{fence}"
