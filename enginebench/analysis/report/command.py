"""`enginebench report`: from runs to the answer, tables and findings, an HTML page and files of other formats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enginebench.analysis.plan.settings import PlanSettings
from enginebench.analysis.settings import ClaimSettings, RunsSettings
from enginebench.settings.flags import AsJson, read_settings, with_flags
from enginebench.settings.schema import UserMistake, settings_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from enginebench.analysis.report.contents import Report
    from enginebench.analysis.summary.run_summary import RunSummary

PAGE = "report.html"
OF_A_PLAN = ("slo", "peak", "headroom", "spares", "price", "gpu", "gpus", "prices")
NOT_ASKED = {declared.name for declared in settings_of(PlanSettings)} - {*OF_A_PLAN}
"""What only `enginebench plan` asks for."""

RUNS = typer.Argument(
    help="Runs (folders or ids), or folders of runs. Default: the newest run.", metavar="RUNS", show_default=False
)
OUTPUT = typer.Option(
    "--output",
    "-o",
    help="Also write the report to this file; may be repeated. The suffix sets the format: .html, .md, .csv, .parquet,"
    " .json or .svg (a card to share). An .html file replaces report.html in the run's folder, or beside several.",
    metavar="FILE",
)


@with_flags(RunsSettings, ClaimSettings, PlanSettings, leave_out=NOT_ASKED)
def report(
    names: Annotated[list[str] | None, RUNS] = None,
    output: Annotated[list[Path] | None, OUTPUT] = None,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Report on one run, or compare several.

    Every number is computed from the run's records, so a killed run can be reported on too.

    Runs with the same label are repeats of one engine; a winner needs three repeats of each.

    --slo judges every load and gives the users of a replica; a tier, such as fast:ttft_p95=0.3, goes before its
    objectives. --price or --gpu adds the cost of tokens, --peak with --slo the number of replicas that each engine
    needs.

    Exit code: 0 good, 1 an objective (those of classes too) was missed or not shown to be met or a search is undecided,
    2 a usage error, or nothing may be claimed of an engine (its runs differ, or are invalid).

    Examples:

      enginebench report

      enginebench report runs/20261121-100542-mistralrs-k3vq runs/20261121-100912-transformers-x1pd

      enginebench report --slo ttft_p99=0.5 --slo tpot_p99=0.05

      enginebench report --slo fast:ttft_p95=0.3,tpot_p95=0.03 --slo relaxed:ttft_p95=2

      enginebench report -o report.md -o numbers.csv

      enginebench report runs -o card.svg

      enginebench report runs --price 2.20 --peak 80users --slo ttft_p99=1
    """
    from enginebench.analysis.console import stderr
    from enginebench.analysis.plan.prices import check_labels
    from enginebench.analysis.summary.loading import summaries_of

    log = stderr()
    folder: RunsSettings = read_settings(RunsSettings, given)
    claims: ClaimSettings = read_settings(ClaimSettings, given)
    plan: PlanSettings = read_settings(PlanSettings, given)
    _check_formats(output or ())
    if plan.peak is not None and not plan.slo:
        raise UserMistake("--peak needs an objective, such as --slo ttft_p99=1.")
    with log.status("Reading the runs …") as status:

        def reading(run: Path) -> None:
            status.update(f"Reading {run.name} …")

        summaries = summaries_of(names or (), folder.runs, plan.slo, folder.tokenizer, reading, need_requests=True)
        check_labels(plan, [summary.label for summary in summaries])
        made, files = made_of(summaries, output or (), claims, plan, status.update)
    _print(made, files, as_json)
    if made.comparison.not_claimed is not None:
        log.print(f"Nothing may be claimed: {made.comparison.not_claimed}.", style="red")
        raise typer.Exit(2)
    if not _found_good(made):
        raise typer.Exit(1)


def _found_good(made: Report) -> bool:
    """Whether every search found a capacity, or without a search, every objective was met."""
    searches = [run.search for run in made.runs if run.search is not None]
    return all(search.state == "found" for search in searches) if searches else made.objectives in {None, "met"}


def made_of(
    summaries: Sequence[RunSummary],
    output: Sequence[Path],
    claims: ClaimSettings,
    plan: PlanSettings,
    says: Callable[[str], None] = lambda _: None,
) -> tuple[Report, list[Path]]:
    """The report, and the files it was written to: without being asked for, the page where it can be. `says` is told
    what is being done."""
    from dataclasses import replace

    from enginebench.analysis.compare.comparison import compare
    from enginebench.analysis.report.contents import report_of
    from enginebench.analysis.report.decision import decide, replicas_of
    from enginebench.analysis.report.document import write

    comparison = compare(
        summaries,
        allow_different=claims.allow_different,
        allow_invalid=claims.allow_invalid,
        margin=claims.margin,
    )
    if plan.peak is not None:
        says("Simulating the peak …")
    replicas, answer = replicas_of(summaries, plan) if plan.peak is not None else ([], "")
    pages, others = ([path for path in output if (path.suffix == ".html") is page] for page in (True, False))
    beside = (summaries[0].folder if len(summaries) == 1 else summaries[-1].folder.parent) / PAGE
    decision = decide(summaries, comparison, plan, replicas, answer)
    made = report_of(summaries, comparison, decision, pages[0] if pages else beside)
    says("Drawing the charts …")
    if not pages:
        try:
            write(made, beside, beside=True)
            pages = [beside]
        except UserMistake:  # the runs are where nothing can be written
            made = replace(made, report=None)
    for path in output:
        write(made, path)
    return made, [*pages, *others]


def _check_formats(output: Sequence[Path]) -> None:
    """Raises `UserMistake` for a suffix that names no format."""
    from enginebench.analysis.report.document import FORMATS

    unknown = [path for path in output if path.suffix not in FORMATS]
    if unknown:
        raise UserMistake(f"{unknown[0]} has no known suffix: use one of {', '.join(FORMATS)}.")


def _print(made: Report, files: Sequence[Path], as_json: bool) -> None:
    from enginebench.analysis.console import stderr, stdout
    from enginebench.analysis.report.document import as_json_document
    from enginebench.analysis.report.terminal import print_report
    from enginebench.records.plain_text import plain

    if as_json:
        typer.echo(json.dumps(as_json_document(made), allow_nan=False))
    else:
        console = stdout()
        print_report(console, made)
        console.print()
        if len(made.comparison.engines) > 1:  # the first lines have left the screen
            console.print(made.screen.answer, style="bold")
        if files:
            console.print(f"Report: {plain(', '.join(map(str, files)))}", soft_wrap=True)
    if made.report is None:
        folder = made.runs[-1].folder
        stderr().print(
            f"{plain(str(folder))} cannot be written to, so there is no page: -o report.html writes one elsewhere."
        )
