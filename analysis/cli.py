"""The commands of the analysis; `enginebench report`: runs to a table, findings, a conclusion and an HTML page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from analysis.compare.command import compare as compare_command
from analysis.gate.command import gate
from analysis.imports.command import import_results

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analysis.verdict.comparison import Comparison
    from analysis.verdict.statistics import Answer
    from analysis.verdict.summary import RunSummary

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
app.command("compare")(compare_command)
app.command("gate")(gate)
app.command("import")(import_results)


@app.callback()
def about() -> None:
    """Analysis of finished runs."""


@app.command()
def report(
    runs: Annotated[
        list[str] | None,
        typer.Argument(help="Runs (folders or ids), or folders of runs. Default: the newest run.", show_default=False),
    ] = None,
    slo: Annotated[
        list[str] | None,
        typer.Option(
            help="Objective in seconds, such as ttft_p99=0.5; may be repeated. METRIC is ttft, tpot, ntpot or e2e.",
            metavar="METRIC_pN=SECONDS",
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(help="Where to write the page. Default: in the run's folder, or beside several.", metavar="FILE"),
    ] = None,
    runs_folder: Annotated[
        Path, typer.Option("--runs", help="Where runs are looked for.", envvar="ENGINEBENCH_RUNS", metavar="FOLDER")
    ] = Path("runs"),
    tokenizer: Annotated[
        Path | None,
        typer.Option(help="A tokenizer.json, to count the answers of servers that send no usage.", metavar="FILE"),
    ] = None,
    margin: Annotated[
        float,
        typer.Option(min=1.0, help="Ratio of throughputs from which a difference is of practical significance."),
    ] = 1.05,
    allow_invalid: Annotated[
        bool, typer.Option("--allow-invalid", help="Name a winner and exit with 0 despite invalid findings.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of the table.")] = False,
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
    """
    from rich.console import Console

    from analysis.mistakes import exit_with_sentence
    from analysis.verdict.comparison import compare
    from analysis.verdict.loading import summaries_of
    from records.slo import parse_objectives

    log = Console(stderr=True, highlight=False)
    with exit_with_sentence(log), log.status("Reading the runs …") as status:
        summaries = summaries_of(
            runs or (),
            runs_folder,
            parse_objectives(slo or ()),
            tokenizer,
            lambda name: status.update(f"Reading {name} …"),
            need_requests=True,
        )
        comparison = compare(summaries, allow_invalid, margin)
        status.update("Drawing the charts …")
        page = _write_page(summaries, comparison, html)
    _print(summaries, comparison, page, as_json)
    invalid = comparison.invalid or any(summary.invalid for summary in summaries)
    if invalid and not allow_invalid:
        log.print("A finding makes this invalid; --allow-invalid accepts it.", style="red")
        raise typer.Exit(2)
    searches = [summary.search for summary in summaries if summary.search is not None]
    if any(search.state != "found" for search in searches) or (not searches and answer(summaries) not in {None, "met"}):
        raise typer.Exit(1)


def _write_page(summaries: Sequence[RunSummary], comparison: Comparison, html: Path | None) -> Path:
    from analysis.report.page import write_report

    only = summaries[0].folder
    page = html or (only / "report.html" if len(summaries) == 1 else summaries[-1].folder.parent / "report.html")
    write_report(summaries, comparison, page)
    return page


def _print(summaries: Sequence[RunSummary], comparison: Comparison, page: Path, as_json: bool) -> None:
    from analysis.report.terminal import print_report, stdout

    if as_json:
        typer.echo(json.dumps(document(summaries, comparison, page), allow_nan=False))
        return
    console = stdout()
    print_report(console, summaries, comparison)
    console.print()
    console.print(f"Report: {page}", markup=False, soft_wrap=True)


def document(summaries: Sequence[RunSummary], comparison: Comparison, page: Path) -> dict[str, Any]:
    """What `--json` prints: every run's `summary.json`, the comparison, and where the page is."""
    from dataclasses import asdict

    from analysis.verdict.summary import SCHEMA_VERSION, as_document, without_infinities

    return {
        "schema": SCHEMA_VERSION,
        "runs": [as_document(summary) | {"folder": str(summary.folder)} for summary in summaries],
        "comparison": without_infinities(asdict(comparison)),
        "invalid": comparison.invalid or any(summary.invalid for summary in summaries),
        "objectives": answer(summaries),
        "report": str(page),
    }


def answer(summaries: Sequence[RunSummary]) -> Answer | None:
    """Whether every stage of every run met every objective; `None` where there was none to judge."""
    from analysis.verdict.slo import overall

    attainments = [stage.attainment for summary in summaries for stage in summary.stages]
    answers = [attainment.answer for attainment in attainments if attainment is not None]
    return overall(answers) if answers else None
