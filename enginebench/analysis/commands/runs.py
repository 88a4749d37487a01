"""`enginebench runs`: the runs of a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from enginebench.settings.flags import AsJson
from enginebench.settings.schema import UserMistake


def list_runs(
    folder: Annotated[Path, typer.Argument(help="Folder of the runs.", metavar="FOLDER")] = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """List the runs of a folder, the newest first.

    Numbers are those of the highest load within the run's SLO, or of its highest load. They come from the run's report:
    `enginebench report`.
    """
    from enginebench.analysis.sections.index import index, runs_in
    from enginebench.analysis.write.export import table_rows
    from enginebench.analysis.write.terminal import print_table
    from enginebench.settings.console import stdout

    runs = runs_in(folder)
    if not runs:
        raise UserMistake(f"there is no run in {folder}/ yet: `enginebench run concurrent` makes one.")
    if as_json:
        typer.echo(json.dumps({"runs": table_rows(index(runs))}))
    else:
        print_table(stdout(), index(runs))
