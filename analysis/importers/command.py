"""`enginebench import`: other tools' results as runs, to be reported on, compared and gated."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def import_results(
    files: Annotated[list[Path], typer.Argument(help="Results of other tools; several of one label are repeats.")],
    output: Annotated[Path, typer.Option(help="Folder to write the runs into.", metavar="FOLDER")] = Path("runs"),
    label: Annotated[
        str | None,
        typer.Option(help="What reports call the runs. Default: the model, else the file's name.", show_default=False),
    ] = None,
) -> None:
    """Import results of guidellm or vLLM.

    benchmarks.json (guidellm), the JSON of `vllm bench serve --save-result --save-detailed`.

    Numbers that a file lacks stay n/a; a finding of the run names them.

    Exit code: 0 good, 2 a file that cannot be imported.

    Examples:

      enginebench import benchmarks.json --label vllm

      enginebench import results/run-1.json results/run-2.json results/run-3.json --label vllm --output runs
    """
    from analysis.importers.formats import read
    from analysis.importers.results import write_run

    repeats: dict[str, int] = {}
    for file in files:
        results = read(file)
        name = label or (results.source.model or file.stem).rpartition("/")[2]
        repeat = repeats.get(name, 0)
        repeats[name] = repeat + 1
        folder = write_run(results, file, output, name, repeat)
        requests = sum(len(stage.requests) for stage in results.stages)
        typer.echo(f"{folder}: {requests} requests of {results.source.tool}")
        typer.echo(f"missing in this file: {'; '.join(results.source.lacks)}", err=True)
