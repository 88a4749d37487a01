"""`enginebench plan`: how many replicas a peak needs, predicted from runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enginebench.analysis.plan.settings import CannotPlan, PlanSettings
from enginebench.analysis.settings import RunsSettings
from enginebench.records.files import write_atomically
from enginebench.settings.flags import AsJson, read_settings, with_flags
from enginebench.settings.schema import UserMistake

if TYPE_CHECKING:
    from enginebench.analysis.first_screen import FirstScreen
    from enginebench.analysis.plan.alternatives import Alternatives

TEMPLATE = Path(__file__).with_name("plan.html")
EXAMPLE_DATA = Path(__file__).with_name("example.json")
"""Of the plan in docs/capacity-planning.md; `python -m docs.pictures plan` writes it."""

RUNS = typer.Argument(
    help="Runs (folders or ids), or folders of runs, of one engine or of several to compare. Default: the newest run.",
    metavar="RUNS",
    show_default=False,
)


EXAMPLE = typer.Option(
    "--example", help="Write the page of a plan that was made before, to try its sliders: no runs are read."
)
OPEN = typer.Option("--open", help="Open the page in a browser.")


@with_flags(RunsSettings, PlanSettings)
def plan(
    names: Annotated[list[str] | None, RUNS] = None,
    example: Annotated[bool, EXAMPLE] = False,
    open_page: Annotated[bool, OPEN] = False,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Predict how many replicas a peak load needs, from load tests of one.

    The cost of an engine step is fitted to the records; a simulation of that engine then predicts loads that were not
    measured, up to 1.5 times the largest measured one. The answer is the fewest replicas that meet every objective in
    95 % of the simulated futures, each with the fit's error drawn anew. The error on held-out stages is printed.

    Runs of several engines, or of one with several settings or GPU types, are planned separately and compared: what
    each costs a month, and which are dominated.

    Exit code: 0 good, 2 a usage error, or records that support no answer.

    Examples:

      enginebench plan --example --open

      enginebench plan 20261122-0616 --peak 80users --slo ttft_p99=1

      enginebench plan runs --peak 40req/s --slo ttft_p95=0.5 --slo tpot_p95=0.05 --headroom 0.2
    """
    if example:
        _show_example(Path(given["html"] or "example-plan.html"), open_page)
        return
    from enginebench.analysis.console import stderr
    from enginebench.analysis.engine_runs import by_settings
    from enginebench.analysis.plan.alternatives import make_alternatives
    from enginebench.analysis.plan.document import screen_of
    from enginebench.analysis.plan.page import page_data
    from enginebench.analysis.plan.prices import check_labels
    from enginebench.analysis.plan.requests import check_objectives
    from enginebench.analysis.summary.loading import summaries_of
    from enginebench.records.load import Users
    from enginebench.records.slo import of_tier
    from enginebench.settings.schema import from_environment

    log = stderr()
    where: RunsSettings = read_settings(RunsSettings, given)
    settings: PlanSettings = read_settings(PlanSettings, given)
    if settings.peak is None or not settings.slo:
        raise UserMistake("a plan needs a load and an objective: --peak 40req/s --slo ttft_p99=1.")
    if open_page and settings.html is None:
        raise UserMistake("--open needs a page: --html plan.html.")
    if isinstance(settings.peak, Users) and (given["balancer"] or "balancer" in from_environment(PlanSettings)):
        raise UserMistake(
            "--balancer is for a rate: users are shared out evenly. Leave it out, or give --peak 40req/s."
        )
    check_objectives(of_tier(settings.slo))
    with log.status("Reading …") as status:
        summaries = summaries_of(
            names or (),
            where.runs,
            settings.slo,
            where.tokenizer,
            reading=lambda run: status.update(f"Reading {run.name} …"),
            need_requests=True,
        )
        status.update("Simulating …")
        groups = by_settings(summaries)
        check_labels(settings, groups)
        alternatives = make_alternatives(groups, settings)
        if not alternatives.planned:
            raise CannotPlan(alternatives.refusals)
        screen = screen_of(alternatives, groups, settings.peak)
        if settings.html is not None:
            write_page(page_data(alternatives, screen), settings.html)
    _print(alternatives, screen, as_json)
    if open_page and settings.html is not None:
        typer.launch(str(settings.html))


def write_page(data: Mapping[str, Any], path: Path) -> Path:
    """`data` is that of `page_data`. Raises `OSError`."""
    text = json.dumps(data, allow_nan=False).replace("</", "<\\/")
    write_atomically(path, TEMPLATE.read_text(encoding="utf-8").replace("__DATA__", text))
    return path


def _show_example(html: Path, open_page: bool) -> None:
    """Write the page from its data, which `python -m docs.pictures plan` computes."""
    from enginebench.analysis.console import stdout

    data = json.loads(EXAMPLE_DATA.read_text(encoding="utf-8"))
    path = write_page(data, html)
    console = stdout()
    console.print(data["answer"], style="bold")
    console.print("An example: a scripted server, measured at 2 to 24 users. Drag its peak to any load on the page.")
    console.print(f"Page: {path.absolute()}", soft_wrap=True)
    if open_page:
        typer.launch(str(path))


def _print(alternatives: Alternatives, screen: FirstScreen, as_json: bool) -> None:
    from enginebench.analysis.console import stdout
    from enginebench.analysis.plan.document import alternatives_document, plan_document
    from enginebench.analysis.plan.terminal import print_plan

    if as_json:
        several = len(alternatives.all) > 1
        document = alternatives_document(alternatives) if several else plan_document(alternatives.cheapest)
        typer.echo(json.dumps(document, allow_nan=False))
    else:
        print_plan(stdout(), alternatives, screen)
