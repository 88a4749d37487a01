"""Consoles for standard output and standard error."""

from __future__ import annotations

import os

from rich.console import Console

GOOD, CAUTION = "green4", "dark_orange3"  # ANSI's green and yellow cannot be read on white
PIPE_WIDTH = 120  # of what is neither a terminal nor told by COLUMNS


def stdout() -> Console:
    """Labels may have brackets, such as `vllm [fp8]`, so nothing is read as markup."""
    console = Console(highlight=False, markup=False)
    if console.is_terminal or os.environ.get("COLUMNS", "").isdigit():
        return console
    return Console(highlight=False, markup=False, width=PIPE_WIDTH)


def stderr() -> Console:
    return Console(stderr=True, highlight=False, markup=False)
