"""`enginebench plan`: how many replicas a peak needs, predicted from runs."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from analysis.plan.settings import PlanSettings
from analysis.settings import RunsSettings
from settings_flags import read_settings, with_flags

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def about() -> None:
    """Capacity planning from finished runs."""


@app.command()
@with_flags(RunsSettings, PlanSettings)
def plan(
    names: Annotated[list[str], typer.Argument(help="Folders or ids of runs of one engine.", metavar="RUNS")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of the page.")] = False,
    **given: Any,
) -> None:
    """Say how many replicas a peak load needs, from runs against one.

    What a step of the engine costs is fitted to the records; a simulation of that engine then predicts loads that were
    not measured, up to 1.5 times the largest measured one. Its error on held-out stages is printed.

    Exit code: 0 good, 2 a usage error, or records that support no answer.

    Examples:

      enginebench plan 20261122-0616 --peak 80users --slo ttft_p99=1

      enginebench plan runs/a runs/b --peak 40req/s --slo ttft_p95=0.5 --slo tpot_p95=0.05 --headroom 0.2
    """
    from rich.console import Console

    from analysis.mistakes import exit_with_sentence
    from analysis.plan.answer import as_document, make_plan
    from analysis.plan.page.build import write_page
    from analysis.plan.terminal import print_plan
    from analysis.report.terminal import stdout
    from analysis.run.load import find_run, load_run
    from analysis.verdict.summary import summarise

    log = Console(stderr=True, highlight=False)
    with exit_with_sentence(log):
        where: RunsSettings = read_settings(RunsSettings, given)
        settings: PlanSettings = read_settings(PlanSettings, given)
        if settings.peak is None or not settings.slo:
            raise ValueError("say what must be borne and how well: --peak 40req/s --slo ttft_p99=1.")
        with log.status("Reading …"):
            loaded = [load_run(find_run(name, where.runs)) for name in dict.fromkeys(names)]
            summaries = [summarise(one, settings.slo) for one in loaded]
        with log.status("Simulating …"):
            made = make_plan(loaded, summaries, settings)
            if settings.html is not None:
                write_page(made, settings.html)
    if as_json:
        typer.echo(json.dumps(as_document(made), allow_nan=False))
    else:
        print_plan(stdout(), made)
