"""Shared by the commands of `engines`: tables on standard output, and errors in one sentence."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from rich.console import Console

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")]


def console_of() -> Console:
    from rich.console import Console

    return Console(highlight=False)


def table_of(*columns: str) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for position, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=position == 0)  # names stay in one piece
    return table


def mark(ok: bool, required: bool = False) -> str:
    if ok:
        return "[green]ok[/]"
    return "[bold red]missing[/]" if required else "[yellow]missing[/]"


def escape(text: str) -> str:
    from rich import markup

    return markup.escape(text)


def print_json(document: Any) -> None:
    json.dump(document, sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


def fail(sentence: str) -> NoReturn:
    typer.echo(sentence, err=True)
    raise typer.Exit(2)
