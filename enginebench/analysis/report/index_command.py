"""`enginebench runs`: which runs there are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import typer

from enginebench.analysis.settings import RunsSettings
from enginebench.settings.flags import AsJson, read_settings, with_flags
from enginebench.settings.schema import UserMistake

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enginebench.analysis.report.index import IndexedRun


@with_flags(RunsSettings, leave_out={"tokenizer"})
def list_runs(as_json: AsJson = False, **given: Any) -> None:
    """List the runs of a folder.

    Numbers are those of the highest load within the run's objectives, else of its heaviest. A run that was never
    reported on has none yet: `enginebench report`.
    """
    from enginebench.analysis.report.index import runs_in

    settings: RunsSettings = read_settings(RunsSettings, given)
    runs = runs_in(settings.runs)
    if not runs:
        raise UserMistake(f"there is no run in {settings.runs}/ yet: `enginebench run concurrent` makes one.")
    if as_json:
        typer.echo(json.dumps({"runs": [_document(run) for run in runs]}, allow_nan=False))
    else:
        _print(runs)


def _document(run: IndexedRun) -> dict[str, object]:
    from dataclasses import asdict

    return asdict(run) | {"folder": str(run.folder), "report": None if run.page is None else str(run.page)}


def _print(runs: Sequence[IndexedRun]) -> None:
    """As many columns as the terminal has room for; a run's id is never broken, so that it can be copied."""
    from enginebench.analysis.console import TextTable, print_table, stdout
    from enginebench.analysis.report.index import COLUMNS
    from enginebench.records.formatting import format_value

    words = ("model", "engine", "stage", "scenario")
    numbers = tuple(column.full_title.replace(" (user)", "") for column in COLUMNS)
    headers = ("run", *words, *numbers, "findings")
    rows = tuple(
        (
            run.run_id,
            *(run.model or "", run.label, run.stage or "", run.scenario),
            *(format_value(run.numbers.get(column.key), column.unit) for column in COLUMNS),
            run.findings_text or run.headline,
        )
        for run in runs
    )
    texts = tuple(index for index, header in enumerate(headers) if header not in numbers)
    print_table(stdout(), TextTable("", headers, rows, texts), ("model", *words[1:], "findings", *numbers))
