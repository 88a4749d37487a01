"""`enginebench plan`: how many replicas a peak needs, and what they cost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from enginebench.analysis.commands.output import deliver
from enginebench.analysis.plan.settings import PlanSettings
from enginebench.analysis.settings import RunsSettings
from enginebench.settings.flags import AsJson, read_settings, with_flags
from enginebench.settings.schema import UserMistake

PLAN_FOLDER = Path(__file__).parents[1] / "plan"
TEMPLATE = PLAN_FOLDER / "plan.html"
EXAMPLE_DATA = PLAN_FOLDER / "example.json"
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
    """Plan the replicas for a peak load, from load tests of one.

    The answer is the peak divided by the measured capacity of one replica. Next to it stands the answer of a
    simulation, which can predict loads that were not measured: a model of the engine is fitted to the records, and the
    fewest replicas that meet every objective in 95 % of the simulated futures are found. It is shown only if the model
    predicts each measured load from the others with an error of at most 25 %.

    Runs of several engines, or of one with several settings or GPU types, are planned separately and compared.

    Exit code: 0 good, 1 no candidate meets the objectives, 2 a usage error, 3 not enough evidence.

    Examples:

      enginebench plan --example --open

      enginebench plan 20261122-0616 --peak 80users --slo ttft_p99=1

      enginebench plan runs --peak 40req/s --slo ttft_p95=0.5 --slo tpot_p95=0.05 --headroom 0.2 --price 1.80
    """
    if example:
        _show_example(Path(given["html"] or "example-plan.html"), open_page)
        return
    folder: RunsSettings = read_settings(RunsSettings, given)
    settings: PlanSettings = read_settings(PlanSettings, given)
    if settings.peak is None or not settings.slo:
        raise UserMistake("a plan needs a load and an objective: --peak 40req/s --slo ttft_p99=1.")
    if open_page and settings.html is None:
        raise UserMistake("--open needs a page: --html plan.html.")
    from enginebench.analysis.commands.report import read_runs
    from enginebench.analysis.frame import frame_of
    from enginebench.analysis.plan.candidates import plans_of, separated
    from enginebench.analysis.plan.document import plan_document
    from enginebench.analysis.plan.page import page_data
    from enginebench.analysis.plan.prices import check_labels
    from enginebench.settings.console import stderr

    summaries = separated(read_runs(names or (), folder, settings.slo, need_requests=True))
    check_labels(settings, [summary.label for summary in summaries])
    with stderr().status("Simulating …"):
        frame = frame_of(summaries)
        plans = plans_of(frame, settings)
        document = plan_document(frame, settings, plans)
        if settings.html is not None:
            write_page(page_data(document, plans, settings), settings.html)
    if open_page:
        typer.launch(str(settings.html))
    deliver(document, as_json=as_json)


def write_page(data: Mapping[str, Any], path: Path) -> Path:
    """`data` is that of `page_data`. Raises `OSError`."""
    from enginebench.records.files import write_atomically

    text = json.dumps(data, allow_nan=False).replace("</", "<\\/")
    write_atomically(path, TEMPLATE.read_text(encoding="utf-8").replace("__DATA__", text))
    return path


def _show_example(html: Path, open_page: bool) -> None:
    data = json.loads(EXAMPLE_DATA.read_text(encoding="utf-8"))
    path = write_page(data, html)
    typer.echo(data["answer"])
    typer.echo("An example: a scripted server, measured at 2 to 24 users. Drag its peak to any load on the page.")
    typer.echo(f"Page: {path.absolute()}")
    if open_page:
        typer.launch(str(path))
