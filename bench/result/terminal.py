"""The tables, notes and the sentence on standard output."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from analysis.compare.terminal import print_table
from bench.result.document import BenchResult
from bench.result.tables import CAPTION, NARROW, notes_of, sentence_of, tables_of


def print_result(console: Console, found: BenchResult) -> None:
    for table in tables_of(found):
        print_table(console, table, NARROW)
    if found.measured:
        console.print(Text(CAPTION, style="dim"))
    for note in notes_of(found):
        console.print(Text(f"note: {note}", style="dim"))
    console.print(Text(sentence_of(found), style="bold"))
