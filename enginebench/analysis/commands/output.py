"""Deliver a document to the terminal, as JSON, as a page and further files, and set the exit code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from enginebench.settings.schema import UserMistake

if TYPE_CHECKING:
    from enginebench.analysis.document import Document

PAGE = "report.html"
OUTPUT = typer.Option(
    "--output",
    help="Also write the report to this file; may be repeated. The suffix sets the format: .html, .md, .csv, .parquet, "
    ".json, .svg (the first chart) or, for a CI server, .xml (JUnit).",
    metavar="FILE",
)
Output = Annotated[list[Path] | None, OUTPUT]


def check_formats(output: Sequence[Path]) -> None:
    """Raise `UserMistake` for a suffix that names no format."""
    from enginebench.analysis.write.export import WRITERS

    unknown = [path for path in output if path.suffix not in WRITERS]
    if unknown:
        raise UserMistake(f"{unknown[0]} has no known suffix: use one of {', '.join(WRITERS)}.")


def deliver(
    document: Document,
    output: Sequence[Path] = (),
    as_json: bool = False,
    page: Path | None = None,
    brief: bool = False,
    written: Sequence[Path] = (),
) -> None:
    """Print the document, or if `brief` its first screen, and write its files. `page` is written if no other page is
    requested, and skipped if its folder is not writable. Name files that are already `written`. Exit with the
    document's code unless it is 0."""
    from enginebench.analysis.write.export import as_json as json_of
    from enginebench.analysis.write.export import write
    from enginebench.analysis.write.terminal import print_document
    from enginebench.settings.console import stdout

    files = [*output, *written]
    for path in output:
        write(document, path)
    if page is not None and not any(path.suffix == ".html" for path in output):
        try:
            write(document, page, inside=True)
            files.insert(0, page)
        except OSError as error:  # the runs are on a read-only disk
            reason = error.strerror or error
            typer.echo(
                f"There is no page: {page} ({reason}). Use --output report.html to write one elsewhere.", err=True
            )
    if as_json:
        typer.echo(json_of(document), nl=False)
    else:
        print_document(stdout(), replace(document, sections=()) if brief else document)
        if files:
            typer.echo(f"\nReport: {', '.join(map(str, files))}")
    if document.exit_code:
        raise typer.Exit(document.exit_code)
