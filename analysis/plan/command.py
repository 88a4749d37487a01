"""`enginebench plan`: how many replicas a peak needs, predicted from runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from analysis.plan.settings import PlanSettings
from analysis.settings import RunsSettings
from settings.flags import AsJson, read_settings, with_flags
from settings.schema import UserMistake

if TYPE_CHECKING:
    from analysis.data.load import RunData
    from analysis.plan.alternatives import Alternatives
    from analysis.plan.answer import Plan


@with_flags(RunsSettings, PlanSettings)
def plan(
    names: Annotated[
        list[str],
        typer.Argument(
            help="Runs (folders or ids), or folders of runs, of one engine or of several to compare.", metavar="RUNS"
        ),
    ],
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Predict how many replicas a peak load needs, from load tests of one.

    The cost of an engine step is fitted to the records; a simulation of that engine then predicts loads that were not
    measured, up to 1.5 times the largest measured one. Its error on held-out stages is printed.

    Runs of several engines, or of one with several settings or GPU types, are planned separately and compared: which
    costs the least, and which are dominated.

    Exit code: 0 good, 2 a usage error, or records that support no answer.

    Examples:

      enginebench plan 20261122-0616 --peak 80users --slo ttft_p99=1

      enginebench plan runs/a runs/b --peak 40req/s --slo ttft_p95=0.5 --slo tpot_p95=0.05 --headroom 0.2
    """
    from analysis.console import stderr
    from analysis.plan.page import write_page

    log = stderr()
    where: RunsSettings = read_settings(RunsSettings, given)
    settings: PlanSettings = read_settings(PlanSettings, given)
    if settings.peak is None or not settings.slo:
        raise UserMistake("a plan needs a load and an objective: --peak 40req/s --slo ttft_p99=1.")
    with log.status("Reading …"):
        loaded = _loaded(names, where)
    with log.status("Simulating …"):
        made, several = _made(loaded, settings)
        if settings.html is not None:
            write_page(made, settings.html)
    _print(made, several, as_json)


def _loaded(names: list[str], where: RunsSettings) -> list[RunData]:
    from analysis.data.load import load_run
    from analysis.summary.loading import run_folders

    return [load_run(folder, where.tokenizer) for folder in run_folders(names, where.runs)]


def _made(loaded: list[RunData], settings: PlanSettings) -> tuple[Plan, Alternatives | None]:
    """The cheapest plan, and all of them where there are several engines."""
    from analysis.plan.alternatives import grouped, make_alternatives
    from analysis.plan.answer import make_plan
    from analysis.summary.run_summary import summarise

    summaries = {one.meta.run_id: summarise(one, settings.slo) for one in loaded}
    groups = grouped(loaded)
    if len(groups) == 1:
        return make_plan(loaded[0].meta.label, loaded, list(summaries.values()), settings), None
    several = make_alternatives(groups, summaries, settings)
    return several.cheapest[1], several


def _print(made: Plan, several: Alternatives | None, as_json: bool) -> None:
    from analysis.console import stdout
    from analysis.plan import alternatives
    from analysis.plan.document import as_document
    from analysis.plan.terminal import print_plan
    from analysis.plan.terminal_alternatives import print_alternatives

    if as_json:
        document = as_document(made) if several is None else alternatives.as_document(several)
        typer.echo(json.dumps(document, allow_nan=False))
    elif several is None:
        print_plan(stdout(), made)
    else:
        print_alternatives(stdout(), several)
