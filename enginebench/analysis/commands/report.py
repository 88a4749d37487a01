"""`enginebench report` and `enginebench compare`: from runs to a document."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from enginebench.analysis.commands.output import PAGE, Output, check_formats, deliver
from enginebench.analysis.settings import PlanSettings, ReadSettings, RunsSettings
from enginebench.settings.flags import AllowInvalid, AsJson, read_settings, with_flags
from enginebench.settings.schema import UserMistake

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enginebench.analysis.summary.run_summary import RunSummary
    from enginebench.records.slo import Objective

RUNS = typer.Argument(
    help="Runs (folders or ids), or folders of runs. Default: the newest run.", metavar="RUNS", show_default=False
)


Format = Annotated[
    Literal["br"] | None,
    typer.Option(
        help="Also write llm-d's Benchmark Report 0.2.1, a YAML file for each stage, into the folder of each run.",
        show_default=False,
    ),
]


@with_flags(RunsSettings, PlanSettings, leave_out=("headroom", "spares", "peak_seconds"))
def report(
    names: Annotated[list[str] | None, RUNS] = None,
    output: Output = None,
    as_json: AsJson = False,
    format: Format = None,
    allow_invalid: AllowInvalid = False,
    **flags: Any,
) -> None:
    """Report on one run, or on several engines.

    Every number is computed from the run's records, so there can be a report on a killed run. Runs with the same label
    are repeats of one engine; differences are tested from three repeats on.

    --slo judges every load. --peak with --slo adds the replicas that each engine needs, and --price what they cost.

    Exit code: 0 good, 1 an objective was missed, 2 a usage error or an invalid run, 3 too little
    was measured to judge an objective.

    Examples:

      enginebench report

      enginebench report runs --slo ttft_p99=500ms,tpot_p99=50ms

      enginebench report runs --slo ttft_p99=1s --peak 80 --price 2.20

      enginebench report --output report.md --output numbers.csv

      enginebench report --format br
    """
    folder: RunsSettings = read_settings(RunsSettings, flags)
    plan: PlanSettings = read_settings(PlanSettings, flags)
    check_formats(output or ())
    if plan.peak is not None and not plan.slo:
        raise UserMistake("--peak needs an objective, such as --slo ttft_p99=1s.")
    from enginebench.analysis.formats.benchmark_report_writer import write_reports
    from enginebench.analysis.frame import frame_of
    from enginebench.analysis.plan.replicas import replicas_of, separated
    from enginebench.analysis.reports import report_document

    summaries = read_runs(names or (), folder, plan.slo, need_requests=True)
    summaries = summaries if plan.peak is None else separated(summaries)
    plan.check_labels([summary.label for summary in summaries])
    frame = frame_of(summaries)
    replicas = replicas_of(frame, plan)
    document = report_document(frame, replicas, plan.peak, allow_invalid)
    folder_of_page = summaries[0].folder if len(summaries) == 1 else summaries[-1].folder.parent
    written = write_reports(frame) if format == "br" else []
    deliver(document, output or (), as_json, folder_of_page / PAGE, written=written)


@with_flags(ReadSettings)
def compare(
    names: Annotated[
        list[str],
        typer.Argument(help="Runs, or folders of runs; those with the same label are repeats.", metavar="RUNS"),
    ],
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="LABEL",
            help="The label to compare with. Default: transformers, if there are such runs.",
            show_default=False,
        ),
    ] = None,
    stage: Annotated[
        str | None,
        typer.Option(
            help="Load to compare at. Default: the highest common load that an engine sustains.",
            metavar="STAGE",
            show_default=False,
        ),
    ] = None,
    output: Output = None,
    as_json: AsJson = False,
    allow_invalid: AllowInvalid = False,
    **flags: Any,
) -> None:
    """Compare engines at one load: which is better, by how much, and is the difference significant?

    The runs are the samples: three of each engine or more, best interleaved by `enginebench run … --repeat 5`.

    Exit code: 0 good, 2 a usage error, runs that cannot be compared, or an invalid run.

    Examples:

      enginebench compare runs --slo ttft_p95=500ms

      enginebench compare runs/before runs/after --stage "40 users"
    """
    reading: ReadSettings = read_settings(ReadSettings, flags)
    check_formats(output or ())
    summaries = read_runs(names, reading, reading.slo)
    from enginebench.analysis.frame import comparison_frame
    from enginebench.analysis.reports import comparison_document

    labels = list(dict.fromkeys(summary.label for summary in summaries))
    if len(labels) < 2:
        raise UserMistake(f"all runs are of {labels[0]}: a comparison needs another engine, or another --label.")
    frame = comparison_frame(summaries, baseline, stage)
    deliver(comparison_document(frame, allow_invalid), output or (), as_json)


def read_runs(
    names: Sequence[str], folder: RunsSettings, slo: tuple[Objective, ...], need_requests: bool = False
) -> list[RunSummary]:
    """Summarise the named runs, with progress on standard error."""
    from enginebench.analysis.summary.loading import summaries_of
    from enginebench.settings.console import stderr

    with stderr().status("Reading the runs …") as status:

        def reading(run: Path) -> None:
            status.update(f"Reading {run.name} …")

        return summaries_of(names, folder.runs, slo, folder.tokenizer, reading, need_requests=need_requests)
