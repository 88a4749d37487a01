"""`enginebench report`: from runs to a table, findings, a conclusion, an HTML page and files of other formats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from analysis.settings import ClaimSettings, ReadSettings
from settings_flags import read_settings, with_flags

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analysis.report.formats.document import Report
    from analysis.verdict.summary import RunSummary


@with_flags(ReadSettings, ClaimSettings, leave_out={"allow_different"})
def report(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Runs (folders or ids), or folders of runs. Default: the newest run.",
            metavar="RUNS",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "-o",
            help="Write the report there too; may be repeated. The suffix names the format: .html, .md, .csv, .parquet"
            " or .json. An .html file takes the place of report.html in the run's folder, or beside several.",
            metavar="FILE",
        ),
    ] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(help="A tokenizer.json, to count the answers of servers that send no usage.", metavar="FILE"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of the table.")] = False,
    **given: Any,
) -> None:
    """Report on one run, or compare several.

    Every number is computed again from the run's records, so a run that was killed can be reported on too.

    Runs with the same label are repeats of one engine; a winner is named from three repeats of each on.

    Exit code: 0 good, 1 an objective was missed or not shown to be met or a search found no capacity, 2 a usage error
    or an invalid run.

    Examples:

      enginebench report

      enginebench report runs/20261121-100542-mistralrs-k3vq runs/20261121-100912-transformers-x1pd

      enginebench report --slo ttft_p99=0.5 --slo tpot_p99=0.05

      enginebench report -o report.md -o numbers.csv
    """
    from rich.console import Console

    from analysis.mistakes import exit_with_sentence
    from analysis.report.formats.document import report_of
    from analysis.report.formats.files import write
    from analysis.verdict.comparison import compare
    from analysis.verdict.loading import summaries_of

    log = Console(stderr=True, highlight=False)
    with exit_with_sentence(log), log.status("Reading the runs …") as status:
        reading: ReadSettings = read_settings(ReadSettings, given)
        claims: ClaimSettings = read_settings(ClaimSettings, given)
        _check_formats(output or ())
        summaries = summaries_of(
            names or (),
            reading.runs,
            reading.slo,
            tokenizer,
            lambda name: status.update(f"Reading {name} …"),
            need_requests=True,
        )
        files = _files(output or [], summaries)
        made = report_of(summaries, compare(summaries, claims.allow_invalid, claims.margin), files[0])
        status.update("Drawing the charts …")
        for path in files:
            write(made, path)
    _print(made, files, as_json)
    if made.invalid and not claims.allow_invalid:
        log.print("A finding makes this invalid; --allow-invalid accepts it.", style="red")
        raise typer.Exit(2)
    searches = [summary.search for summary in summaries if summary.search is not None]
    if any(search.state != "found" for search in searches) or (not searches and made.objectives not in {None, "met"}):
        raise typer.Exit(1)


def _check_formats(output: Sequence[Path]) -> None:
    """Raises `ValueError` for a suffix that names no format."""
    from analysis.report.formats.files import FORMATS

    unknown = [path for path in output if path.suffix not in FORMATS]
    if unknown:
        raise ValueError(f"{unknown[0]} names no format: give it one of the suffixes {', '.join(FORMATS)}.")


def _files(output: Sequence[Path], summaries: Sequence[RunSummary]) -> list[Path]:
    """What is written, the page first."""
    pages = [path for path in output if path.suffix == ".html"]
    folder = summaries[0].folder if len(summaries) == 1 else summaries[-1].folder.parent
    return [*(pages or [folder / "report.html"]), *(path for path in output if path.suffix != ".html")]


def _print(made: Report, files: Sequence[Path], as_json: bool) -> None:
    from analysis.report.formats.document import as_json_document
    from analysis.report.terminal import print_report, stdout

    if as_json:
        typer.echo(json.dumps(as_json_document(made), allow_nan=False))
        return
    console = stdout()
    print_report(console, made.runs, made.comparison)
    console.print()
    console.print(f"Report: {', '.join(map(str, files))}", markup=False, soft_wrap=True)
