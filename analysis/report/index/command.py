"""`enginebench runs`: which runs there are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import typer

from analysis.settings import RunsSettings
from settings.flags import AsJson, read_settings, with_flags
from settings.schema import UserMistake

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from analysis.report.index.index import IndexedRun

COLUMNS = ("run", "model", "engine", "stage", "scenario", "tokens/s", "TTFT p95", "findings")
NUMBERS = ("tokens/s", "TTFT p95")
LEFT_OUT = ("model", "engine", "stage", "scenario", "findings")  # by a narrow terminal, in this order


@with_flags(RunsSettings)
def list_runs(as_json: AsJson = False, **given: Any) -> None:
    """List the runs of a folder.

    Numbers are those of each run's heaviest stage. A run that was never reported on has none yet: `enginebench report`.
    """
    from analysis.report.index.index import runs_in

    settings: RunsSettings = read_settings(RunsSettings, given)
    found = runs_in(settings.runs)
    if not found:
        raise UserMistake(f"there is no run in {settings.runs}/ yet: `enginebench run concurrent` makes one.")
    if as_json:
        typer.echo(json.dumps({"runs": [_document(run) for run in found]}, allow_nan=False))
    else:
        _print(found)


def _document(run: IndexedRun) -> dict[str, object]:
    from dataclasses import asdict

    return asdict(run) | {"folder": str(run.folder), "report": None if run.page is None else str(run.page)}


def _print(runs: Sequence[IndexedRun]) -> None:
    """As many columns as the terminal has room for; a run's id is never broken, so that it can be copied."""
    from rich.text import Text

    from analysis.console import stdout
    from analysis.units import in_words

    console = stdout()
    room = console.options.update(width=10_000)  # to measure a table as wide as it would like to be
    for count in range(len(LEFT_OUT) + 1):
        table = _table(runs, LEFT_OUT[:count])
        if console.measure(table, options=room).maximum <= console.width:
            break
    console.print(table)
    if count:
        also = f"A wider terminal and --json also have {in_words(LEFT_OUT[:count])}."
        console.print(Text(also, style="dim"))


def _table(runs: Sequence[IndexedRun], left_out: Sequence[str]) -> Table:
    from rich.text import Text

    from analysis.console import ruled_table
    from analysis.report.terminal import STYLES
    from analysis.units import MISSING, format_seconds, significant

    titles = [title for title in COLUMNS if title not in left_out]
    table = ruled_table()
    for title in titles:
        number = title in NUMBERS
        table.add_column(
            title, justify="right" if number else "left", no_wrap=number or title == "run", overflow="fold"
        )
    for run in runs:
        worst = next((severity for severity in STYLES if (run.findings or {}).get(severity)), "")
        cells = {
            "run": Text(run.run_id),
            "engine": Text(run.label),
            "model": Text(run.model or ""),
            "scenario": Text(run.scenario),
            "stage": Text(run.stage or ""),
            "tokens/s": Text(MISSING if run.throughput is None else significant(run.throughput)),
            "TTFT p95": Text(MISSING if run.stage is None else format_seconds(run.ttft_p95)),
            "findings": Text(run.said or run.headline, style=STYLES.get(worst, "")),
        }
        table.add_row(*(cells[title] for title in titles))
    return table
