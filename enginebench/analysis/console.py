"""What the commands of the analysis print: to standard output or standard error, tables of text, warnings."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from enginebench.records.formatting import FIGURE_SPACE, POINT_SPACE, in_words

PIPE_WIDTH = 120  # of what is neither a terminal nor told by COLUMNS
SENTENCE = 30  # characters, from which on a cell may be broken into lines
NO_STYLES: Mapping[str, str] = {}
NO_WIDTHS: Mapping[int, int] = {}
ACTIVE = r"<(?=[a-zA-Z/!?])|\](?=[(\[:])"  # where Markdown begins HTML, and where it ends the text of a link
GOOD, CAUTION = "green4", "dark_orange3"  # ANSI's green and yellow cannot be read on white


def stdout() -> Console:
    console = Console(highlight=False, markup=False)  # labels may have brackets, such as `vllm [fp8]`
    if console.is_terminal or os.environ.get("COLUMNS", "").isdigit():
        return console
    return Console(highlight=False, markup=False, width=PIPE_WIDTH)


def stderr() -> Console:
    return Console(stderr=True, highlight=False, markup=False)


def ruled_table(gap: int = 1) -> Table:
    """Without columns yet; `gap` is between two of them."""
    return Table(box=box.HORIZONTALS, padding=(0, gap, 0, 0), pad_edge=False, border_style="dim")


def warning(text: str) -> Text:
    return Text.assemble(("warn ", CAUTION), text)


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table that every surface sets in its own way. `texts` are the columns, from the left, that hold words; the
    others hold numbers."""

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: tuple[int, ...]
    caption: str = ""

    @property
    def markdown(self) -> str:
        sides = [":---" if index in self.texts else "---:" for index in range(len(self.headers))]
        return "\n".join(f"| {' | '.join(map(_plain, cells))} |" for cells in (self.headers, sides, *self.rows))

    def without(self, headers: Sequence[str]) -> TextTable:
        """Without those columns."""
        kept = [index for index, header in enumerate(self.headers) if header not in headers]
        texts = tuple(new for new, index in enumerate(kept) if index in self.texts)
        rows = tuple(tuple(row[index] for index in kept) for row in self.rows)
        return TextTable(self.title, tuple(self.headers[index] for index in kept), rows, texts, self.caption)


def escaped(text: str) -> str:
    """As Markdown shows it literally: names of engines may hold anything."""
    return re.sub(rf"[\\`*|]|{ACTIVE}|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", text)


def inert(text: str) -> str:
    """A sentence or a heading for Markdown, in which nothing that it quotes becomes HTML or a link."""
    return re.sub(ACTIVE, r"\\\g<0>", text)


def _plain(text: str) -> str:
    """Without what keeps decimal points in line."""
    return escaped(text.replace(FIGURE_SPACE, "").replace(POINT_SPACE, ""))


def print_table(
    console: Console,
    table: TextTable,
    left_out_first: Sequence[str] = (),
    styles: Mapping[str, str] = NO_STYLES,
) -> None:
    """As wide as the console if it can be: without the columns in `left_out_first`, in that order, as far as needed,
    and with a column of sentences broken into lines. What is too wide even so is broken by the terminal and not cut
    off. `styles` are of cells, by their text."""
    if not table.rows:
        return
    left_out: list[str] = []
    for header in left_out_first:
        if _width(console, table.without(left_out)) <= console.width:
            break
        if header in table.headers:
            left_out.append(header)
    shown = table.without(left_out)
    if table.title:
        console.print(Text(table.title, style="bold"))
    gap = 1 if _width(console, shown) <= console.width else 0
    widths = _sentences(shown, _width(console, shown, gap) - console.width)
    drawn = _drawn(shown, styles, gap, widths)
    width = _measured(console, drawn)
    target = (
        console if width <= console.width else Console(file=console.file, highlight=False, markup=False, width=width)
    )
    target.print(drawn)
    notes = [table.caption] if table.caption else []
    notes += [f"A wider terminal and --json also have {in_words(left_out)}."] if left_out else []
    if notes:
        console.print(Text(" ".join(notes), style="dim"))
    console.print()


def _width(console: Console, table: TextTable, gap: int = 1) -> int:
    return _measured(console, _drawn(table, NO_STYLES, gap))


def _measured(console: Console, drawn: Table) -> int:
    return console.measure(drawn, options=console.options.update(width=10_000)).maximum


def _sentences(table: TextTable, excess: int) -> dict[int, int]:
    """The width of the widest column, by its place, if its cells are sentences and the table is too wide by `excess`
    characters."""
    longest = [max(map(cell_len, cells)) for cells in zip(table.headers, *table.rows, strict=True)]
    widest = max(range(len(longest)), key=longest.__getitem__)
    if excess <= 0 or longest[widest] < SENTENCE:
        return {}
    return {widest: max(longest[widest] - excess, SENTENCE // 2)}


def _drawn(table: TextTable, styles: Mapping[str, str], gap: int, widths: Mapping[int, int] = NO_WIDTHS) -> Table:
    drawn = ruled_table(gap=gap)
    for index, header in enumerate(table.headers):
        justify: JustifyMethod = "left" if index in table.texts else "right"
        drawn.add_column(header, justify=justify, no_wrap=index not in widths, width=widths.get(index))
    for row in table.rows:
        drawn.add_row(*(Text(cell, style=styles.get(cell, "")) for cell in row))
    return drawn
