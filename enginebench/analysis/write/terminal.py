"""A document in a terminal: the first screen, then the sections that are not folded.

Intervals are next to their numbers if the width allows, else below. A table that is still too wide drops the columns of
the largest rank, and says so. A pipe is as wide as `console.PIPE_WIDTH`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text as RichText

from enginebench.analysis.answer import GateAnswer
from enginebench.analysis.document import Block, Code, Column, Document, Figure, Table, Tone, Warning
from enginebench.analysis.write import phrases
from enginebench.analysis.write.cells import NO_BREAK, Shown, clean, glued, show
from enginebench.analysis.write.sentence import sentence
from enginebench.analysis.write.terminal_chart import chart
from enginebench.records.formatting import in_words
from enginebench.settings.console import CAUTION, GOOD

STYLES = {Tone.PLAIN: "", Tone.GOOD: GOOD, Tone.BAD: "red3", Tone.CAUTION: CAUTION, Tone.DIM: "dim"}
SEVERITIES = {"invalid": "bold red3", "warn": CAUTION, "note": "dim"}
GAP = 2  # columns between two cells
NOTE_WIDTH = 14  # columns of a remark below a number
LABEL = 9  # columns of the labels at the left


def print_document(console: Console, document: Document) -> None:
    facts = [("Tested", phrases.tested_line(document.tested)), ("SLO", phrases.slo_line(document.objectives))]
    verdict_first = isinstance(document.answer, GateAnswer)  # easier to find in a CI log
    if not verdict_first:
        _print_facts(console, facts)
        console.print()
    console.print(_wrapped(sentence(document.answer), console.width), style="bold")
    if verdict_first:
        _print_facts(console, facts)
    console.print()
    if document.candidates is not None and document.candidates.rows:
        print_table(console, document.candidates)
    print_legend(console, phrases.legend(document))
    if document.figure is not None:
        _print_figure(console, document.figure)
    if document.next is not None:
        _print_facts(console, [(phrases.next_title(document.next), phrases.next_line(document.next))])
        if document.next.command:
            console.print(RichText(f"{'':{LABEL}}{phrases.next_command(document.next)}"), soft_wrap=True)
    if document.warnings:
        _print_warnings(console, document.warnings)
    shown = replace(document, sections=tuple(section for section in document.sections if not section.folded))
    for section in shown.sections:
        blocks = [block for block in section.blocks if not isinstance(block, Figure)]  # figures are on the page
        if blocks:
            console.print()
            console.print(RichText(clean(section.title), style="bold underline"))
            for block in blocks:
                _print_block(console, block, section.title)
    print_legend(console, phrases.legend_of_sections(shown))


def print_legend(console: Console, legend: Sequence[tuple[str, str]]) -> None:
    if legend:
        console.print(_wrapped(phrases.legend_line(legend), console.width), style="dim")
        console.print()


def print_table(console: Console, table: Table) -> None:
    """Print a table within the width of the console; break names if even its main columns are too wide."""
    layout = _layout(table.without_empty_columns(), console.width)
    if table.title:
        console.print(RichText(clean(table.title), style="bold"))
    console.print(_drawn(layout))
    notes = [f"{len(table.rows) - table.rows_shown:,} more rows"] if len(table.rows) > table.rows_shown else []
    notes += [in_words(layout.dropped)] if layout.dropped else []
    if notes:
        left_out = f"Left out: {in_words(notes)} (see a wider terminal, the page or --json)."
        console.print(_wrapped(left_out, console.width), style="dim")
    console.print()


@dataclass(frozen=True, slots=True)
class _Layout:
    """The columns that fit, with the width of each; `stacked`: notes are below their numbers."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Shown, ...], ...]
    widths: tuple[int, ...]
    stacked: bool
    dropped: tuple[str, ...]
    fits: bool


def _layout(table: Table, width: int) -> _Layout:
    kept = list(range(len(table.columns)))
    cells = [[show(cell) for cell in row] for row in table.rows[: table.rows_shown]]
    dropped: list[int] = []
    while True:
        columns = tuple(table.columns[k] for k in kept)
        rows = tuple(tuple(row[k] for k in kept) for row in cells)
        titles = tuple(clean(table.columns[k].title) for k in sorted(dropped))
        for stacked in (False, True):
            widths = _widths(columns, rows, stacked)
            layout = _Layout(columns, rows, widths, stacked, titles, sum(widths) + GAP * (len(kept) - 1) <= width)
            if layout.fits:
                return layout
        last = max(kept, key=lambda k: (table.columns[k].rank, not table.columns[k].text, k))
        if table.columns[last].text and table.columns[last].rank == 0:
            return layout
        kept.remove(last)
        dropped.append(last)


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[Shown]], stacked: bool) -> tuple[int, ...]:
    """Return the minimum width of each column. Headings are broken between words, so their longest word counts."""
    widths = []
    for k, column in enumerate(columns):
        texts = [cell_len(row[k].text) for row in rows]
        notes = [cell_len(line) for row in rows for line in _note_lines(row[k], stacked)]
        most = max(texts, default=0), max(notes, default=0)
        if stacked or column.text:
            cell = max(most) if stacked else max((cell_len(row[k].line) for row in rows), default=0)
        else:
            cell = most[0] + (most[1] + 1 if most[1] else 0)
        heading = [cell_len(word) for word in column.heading.split()]
        widths.append(max(cell, *heading, 1) if heading else max(cell, 1))
    return tuple(widths)


def _note_lines(cell: Shown, stacked: bool) -> list[str]:
    """Break a remark into lines if it is below its number; never break an interval."""
    return textwrap.wrap(cell.note, NOTE_WIDTH) if stacked and cell.note[:1].isalpha() else [cell.note]


def _drawn(layout: _Layout) -> RichTable:
    drawn = RichTable(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, GAP - 1, 0, 0), pad_edge=False)
    drawn.border_style = "dim"
    for column, width in zip(layout.columns, layout.widths, strict=True):
        heading = [*textwrap.wrap(clean(column.title), width), *textwrap.wrap(clean(column.unit), width)]
        drawn.add_column(
            RichText("\n".join(heading), style="dim"),
            justify="left" if column.text else "right",
            overflow="fold",
            no_wrap=layout.fits or not column.text,
            min_width=width if layout.fits or not column.text else None,
        )
    for row in layout.rows:
        drawn.add_row(*(_cell(layout, k, cell) for k, cell in enumerate(row)))
    return drawn


def _cell(layout: _Layout, k: int, cell: Shown) -> RichText:
    """Align numbers, and the notes after them, with those of other rows."""
    style, note_style = STYLES[cell.tone], "dim" if layout.stacked else ""
    if layout.stacked or layout.columns[k].text:
        between = ("\n" if layout.stacked else " ") if cell.note else ""
        note = "\n".join(_note_lines(cell, layout.stacked))
        return RichText.assemble((cell.text, style), between, (note, note_style))
    most = max(cell_len(row[k].note) for row in layout.rows)
    note = f" {cell.note}{' ' * (most - cell_len(cell.note))}" if most else ""
    return RichText.assemble((cell.text, style), note)


def _print_facts(console: Console, facts: Iterable[tuple[str, str]]) -> None:
    """Print labels, and next to them lines with a hanging indent."""
    for label, text in facts:
        if text:
            lines = _wrapped(text, console.width - LABEL).replace("\n", "\n" + " " * LABEL)
            style = "bold" if label in {"Next", "Now"} else "dim"
            console.print(RichText.assemble((f"{label:{LABEL}}", style), lines))


def _wrapped(text: str, width: int) -> str:
    """Break between words, but not between a number and its unit."""
    return "\n".join(textwrap.wrap(glued(text), max(width, 20), break_on_hyphens=False)).replace(NO_BREAK, " ")


def _print_warnings(console: Console, warnings: Sequence[Warning]) -> None:
    console.print()
    console.print(RichText(phrases.warnings_title(warnings), style=f"bold {CAUTION}"))
    for warning in warnings[: phrases.MAX_WARNINGS]:
        evidence, remedy = phrases.warning_texts(warning)
        texts = [evidence, *([f"→ {remedy}"] if remedy else [])]
        lines = "\n".join(_wrapped(text, console.width - LABEL) for text in texts).replace("\n", "\n" + " " * LABEL)
        console.print(RichText.assemble((f"{warning.severity:{LABEL}}", SEVERITIES[warning.severity]), lines))


def _print_figure(console: Console, figure: Figure) -> None:
    lines = chart(figure, console.width)
    for line in lines:
        console.print(RichText(line), no_wrap=True, overflow="crop")
    if lines:
        console.print()


def _print_block(console: Console, block: Block, heading: str) -> None:
    match block:
        case Table():
            print_table(console, replace(block, title="") if block.title == heading else block)
        case Code():
            for line in block.lines:
                console.print(RichText(f"  {clean(line)}"), soft_wrap=True)
