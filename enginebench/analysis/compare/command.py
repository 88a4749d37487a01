"""`enginebench compare`: which engine holds more load within the SLO, which is faster, by how much, and is it shown?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enginebench.analysis.settings import ClaimSettings, ReadSettings
from enginebench.settings.flags import AsJson, read_settings, with_flags

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from enginebench.analysis.compare.comparison import Comparison
    from enginebench.analysis.summary.run_summary import RunSummary


@with_flags(ReadSettings, ClaimSettings)
def compare(
    names: Annotated[
        list[str],
        typer.Argument(help="Runs, or folders of runs; those with the same label are repeats.", metavar="RUNS"),
    ],
    baseline: Annotated[
        str | None,
        typer.Option(help="The label to compare with. Default: transformers, else the first.", show_default=False),
    ] = None,
    stage: Annotated[
        str | None,
        typer.Option(
            help="The stage to show metric by metric. Default: the heaviest that meets the SLO, else the heaviest.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Compare engines: which holds more load within the SLO, which is faster, by how much, and may that be claimed?

    Every metric against a baseline at every load, with tests and effect sizes. The runs are the samples: three of each
    engine or more, best interleaved by `enginebench run … --repeat 5`. `enginebench report` has the same comparison.

    Exit code: 0 good, 2 a usage error, or nothing may be claimed of an engine (its runs differ, or are invalid).

    Examples:

      enginebench compare runs --slo ttft_p95=0.5

      enginebench compare runs/before runs/after --stage "40 users" --allow-different
    """
    from enginebench.analysis.compare.comparison import compare as compare_runs
    from enginebench.analysis.console import stderr, stdout
    from enginebench.analysis.summary.loading import summaries_of
    from enginebench.settings.schema import UserMistake

    log = stderr()
    with log.status("Reading the runs …") as status:
        reading: ReadSettings = read_settings(ReadSettings, given)
        claims: ClaimSettings = read_settings(ClaimSettings, given)
        summaries = summaries_of(
            names,
            reading.runs,
            reading.slo,
            reading.tokenizer,
            reading=lambda run: status.update(f"Reading {run.name} …"),
        )
        comparison = compare_runs(
            summaries, baseline, stage, claims.allow_different, claims.allow_invalid, claims.margin
        )
    if len(comparison.engines) < 2:
        raise UserMistake(
            f"all runs are of {comparison.baseline}: a comparison needs another engine, or another --label."
        )
    if as_json:
        typer.echo(json.dumps(document(comparison, summaries), allow_nan=False))
    else:
        show(stdout(), comparison, summaries)
    if comparison.not_claimed is not None:
        log.print(f"Nothing may be claimed: {comparison.not_claimed}.", style="red")
        raise typer.Exit(2)


def show(console: Console, comparison: Comparison, summaries: Sequence[RunSummary]) -> None:
    """The sentence first, then the tables and what they mean, and what speaks against them."""
    from rich.text import Text

    from enginebench.analysis.compare.headline import headline
    from enginebench.analysis.compare.tables import LEFT_OUT, STYLES, criteria, tables_of
    from enginebench.analysis.console import print_table
    from enginebench.analysis.first_screen import candidates_of, first_screen, print_first_screen
    from enginebench.analysis.summary.remarks import caveats_line, print_remarks, remarks

    candidates = candidates_of(comparison, summaries)
    print_first_screen(console, first_screen(headline(comparison, summaries), candidates))
    findings = [*comparison.findings, *(finding for run in summaries for finding in run.findings)]
    merged = remarks(findings, [run.label for run in summaries])
    print_remarks(console, [remark for remark in merged if remark.severity == "invalid"])
    for table in tables_of(comparison):
        print_table(console, table, LEFT_OUT, STYLES)
    console.print(Text(criteria(comparison), style="dim"))
    caveats = [remark for remark in merged if remark.severity != "invalid"]
    if caveats:
        console.print()
        console.print(Text(caveats_line(caveats, "enginebench report"), style="dim"))


def document(comparison: Comparison, summaries: Sequence[RunSummary]) -> dict[str, Any]:
    """What `--json` prints: the comparison at every load, its sentence and criteria, and all findings."""
    from enginebench.analysis.compare.headline import headline
    from enginebench.analysis.compare.tables import criteria
    from enginebench.analysis.documents import as_document
    from enginebench.analysis.summary.run_summary import SCHEMA_VERSION

    findings = [*comparison.findings, *(finding for run in summaries for finding in run.findings)]
    return {
        **as_document(comparison),
        "schema": SCHEMA_VERSION,
        "sentence": headline(comparison, summaries),
        "criteria": criteria(comparison),
        "findings": as_document(findings),
        "folders": {
            label: [str(run.folder) for run in summaries if run.label == label] for label in comparison.engines
        },
    }
