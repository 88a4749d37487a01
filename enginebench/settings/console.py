"""Consoles for standard output and standard error."""

from __future__ import annotations

import errno
import os
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

GOOD, CAUTION = "green4", "dark_orange3"  # ANSI's green and yellow cannot be read on white
PIPE_WIDTH = 120  # columns without a terminal and without COLUMNS


def stdout(markup: bool = False) -> Console:
    """Return a console. Labels may have brackets, such as `vllm [fp8]`: with `markup`, they must be escaped."""
    console = _console()(highlight=False, markup=markup)
    if console.is_terminal or os.environ.get("COLUMNS", "").isdigit():
        return console
    return _console()(highlight=False, markup=markup, width=PIPE_WIDTH)


@cache
def _console() -> type[Console]:
    from rich.console import Console

    class Output(Console):
        def on_broken_pipe(self) -> None:  # Rich would exit with 1, which is a verdict
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    return Output


def small_table(*columns: str) -> Table:
    """Return a table whose first column, the names, is not wrapped; other columns are folded."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for position, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=position == 0)
    return table


def stderr() -> Console:
    return _console()(stderr=True, highlight=False, markup=False)
