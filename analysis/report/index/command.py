"""`enginebench runs`: which runs there are, and a page of them all."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import typer

from analysis.settings import RunsSettings
from settings_flags import AsJson, read_settings, with_flags

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from analysis.report.index.index import IndexedRun


@with_flags(RunsSettings)
def list_runs(as_json: AsJson = False, **given: Any) -> None:
    """List the runs of a folder, and write a page of them all to its index.html.

    Numbers are those of each run's heaviest stage. A run that was never reported on has none yet: `enginebench report`.
    """
    from rich.console import Console

    from analysis.report.index.index import render_index, runs_in
    from records.files import write_atomically

    log = Console(stderr=True, highlight=False)
    runs_folder: Path = read_settings(RunsSettings, given).runs
    found = runs_in(runs_folder)
    if not found:
        log.print(f"there is no run in {runs_folder}/ yet: `enginebench run concurrent` makes one.", style="red")
        raise typer.Exit(2)
    page = runs_folder / "index.html"
    try:
        write_atomically(page, render_index(found, runs_folder))
    except OSError as error:
        log.print(f"{page} cannot be written ({error.strerror}).", style="red", markup=False)
        raise typer.Exit(2) from None
    if as_json:
        typer.echo(json.dumps({"runs": [_document(run) for run in found], "page": str(page)}, allow_nan=False))
        return
    _print(found)
    typer.echo(f"Index: {page}")


def _document(run: IndexedRun) -> dict[str, object]:
    from dataclasses import asdict

    return asdict(run) | {"folder": str(run.folder), "report": None if run.page is None else str(run.page)}


def _print(runs: Sequence[IndexedRun]) -> None:
    from rich.text import Text

    from analysis.console import ruled_table, stdout
    from analysis.report.terminal import STYLES
    from analysis.units import MISSING, format_seconds, significant

    table = ruled_table()
    for title in ("run", "engine", "model", "scenario", "stage"):
        table.add_column(title, overflow="fold")
    for title in ("tokens/s", "TTFT p95"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("findings")
    for run in runs:
        tokens = MISSING if run.throughput is None else significant(run.throughput)
        ttft = "" if run.stage is None else format_seconds(run.ttft_p95)
        worst = next((severity for severity in STYLES if (run.findings or {}).get(severity)), "")
        said = Text(run.said or run.headline, style=STYLES.get(worst, ""))
        texts = (run.run_id, run.label, run.model or "", run.scenario, run.stage or "")
        table.add_row(*map(Text, texts), tokens, ttft, said)
    stdout().print(table)
