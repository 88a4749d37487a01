"""A comparison with a baseline in a terminal: tables that fit its width, what differs, and the sentence."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from analysis.compare.contrasts import Contrasts
from analysis.compare.tables import TextTable, tables_of
from analysis.console import ruled_table
from analysis.report.terminal import print_findings
from records.formatting import in_words

LEFT_OUT = (
    *("Welch", "by prompt", "Mann–Whitney", "Cohen's d", "Cliff's δ", "p", "mean", "difference"),
    *("same answers", "TTFT p50"),
)
"""Columns that a narrow terminal goes without, in this order."""

STYLES = {"better": "green", "worse": "bold red", "not claimed": "yellow"}


def print_contrasts(console: Console, contrasts: Contrasts) -> None:
    for table in tables_of(contrasts).all:
        print_table(console, table)
    print_findings(console, contrasts.differ)
    console.print(Text(contrasts.sentence, style="bold"))


def print_table(console: Console, table: TextTable, left_out_first: Sequence[str] = LEFT_OUT) -> None:
    if not table.rows:
        return
    kept, left_out = list(range(len(table.headers))), []
    for name in left_out_first:
        if _width(console, table, kept) <= console.width:
            break
        if name in table.headers:
            kept.remove(table.headers.index(name))
            left_out.append(name)
    if table.title:
        console.print(Text(table.title, style="bold"))
    width = _width(console, table, kept)  # better broken by the terminal than cut off
    target = (
        console if width <= console.width else Console(file=console.file, highlight=False, markup=False, width=width)
    )
    target.print(_drawn(table, kept))
    said = [table.caption] if table.caption else []
    said += [f"A wider terminal and --json also have {in_words(left_out)}."] if left_out else []
    if said:
        console.print(Text(" ".join(said), style="dim"))
    console.print()


def _width(console: Console, table: TextTable, kept: Sequence[int]) -> int:
    return console.measure(_drawn(table, kept), options=console.options.update(width=10_000)).maximum


def _drawn(table: TextTable, kept: Sequence[int]) -> Table:
    drawn = ruled_table()
    for index in kept:
        drawn.add_column(table.headers[index], justify="left" if index in table.texts else "right", no_wrap=True)
    for row in table.rows:
        drawn.add_row(*(Text(row[index], style=STYLES.get(row[index], "")) for index in kept))
    return drawn
