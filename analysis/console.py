"""What the commands of the analysis print to: standard output, standard error, tables and warnings."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

PIPE_WIDTH = 120  # of what is not a terminal


def stdout() -> Console:
    console = Console(highlight=False, markup=False)  # labels may have brackets, such as `vllm [fp8]`
    return console if console.is_terminal else Console(highlight=False, markup=False, width=PIPE_WIDTH)


def stderr() -> Console:
    return Console(stderr=True, highlight=False, markup=False)


def ruled_table(left: Sequence[str] = (), right: Sequence[str] = (), last: Sequence[str] = (), gap: int = 1) -> Table:
    """Columns of text, of numbers, and again of text, each group by its headings; `gap` is between two columns."""
    table = Table(box=box.HORIZONTALS, padding=(0, gap, 0, 0), pad_edge=False, border_style="dim")
    for title in left:
        table.add_column(title)
    for title in right:
        table.add_column(title, justify="right")
    for title in last:
        table.add_column(title)
    return table


def warning(text: str) -> Text:
    return Text.assemble(("warn ", "yellow"), text)
