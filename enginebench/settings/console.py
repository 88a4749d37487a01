"""Consoles for standard output and standard error."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

GOOD, CAUTION = "green4", "dark_orange3"  # ANSI's green and yellow cannot be read on white
PIPE_WIDTH = 120  # columns, if it is neither a terminal nor set by COLUMNS


def stdout(markup: bool = False) -> Console:
    """Labels may have brackets, such as `vllm [fp8]`, so they are not read as markup unless they are escaped."""
    from rich.console import Console

    console = Console(highlight=False, markup=markup)
    if console.is_terminal or os.environ.get("COLUMNS", "").isdigit():
        return console
    return Console(highlight=False, markup=markup, width=PIPE_WIDTH)


def stderr() -> Console:
    from rich.console import Console

    return Console(stderr=True, highlight=False, markup=False)
