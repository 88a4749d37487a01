"""`enginebench plan`: how many replicas a peak needs, predicted from runs."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from analysis.plan.settings import PlanSettings
from analysis.settings import RunsSettings
from settings_flags import AsJson, read_settings, with_flags
from settings_schema import Address, write_address

if TYPE_CHECKING:
    from rich.console import Console

    from analysis.plan.alternatives import Alternatives
    from analysis.plan.answer import Plan
    from analysis.run.load import RunData


@with_flags(RunsSettings, PlanSettings)
def plan(
    names: Annotated[
        list[str],
        typer.Argument(help="Folders or ids of runs, of one engine or of several to compare.", metavar="RUNS"),
    ],
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Predict how many replicas a peak load needs, from load tests of one.

    The cost of an engine step is fitted to the records; a simulation of that engine then predicts loads that were not
    measured, up to 1.5 times the largest measured one. Its error on held-out stages is printed.

    Runs of several engines, or of one with several settings or GPU types, are planned separately and compared: which
    are dominated, and with prices the cheapest mix.

    --check compares predictions with what servers did, instead of planning.

    Exit code: 0 good, 1 servers are worse than predicted (--check), 2 a usage error, or records that support no answer.

    Examples:

      enginebench plan 20261122-0616 --peak 80users --slo ttft_p99=1

      enginebench plan runs/a runs/b --peak 40req/s --slo ttft_p95=0.5 --slo tpot_p95=0.05 --headroom 0.2

      enginebench plan 20261122-0616 --check http://127.0.0.1:9090 --slo ttft_p95=0.5
    """
    from analysis.console import stderr
    from analysis.mistakes import exit_with_sentence
    from analysis.plan.page.build import write_page

    log = stderr()
    with exit_with_sentence(log):
        where: RunsSettings = read_settings(RunsSettings, given)
        settings: PlanSettings = read_settings(PlanSettings, given)
        if settings.check is not None:
            _check(settings, names, where.runs, as_json, log)
            return
        if settings.peak is None or not settings.slo:
            raise ValueError("a plan needs a load and an objective: --peak 40req/s --slo ttft_p99=1.")
        with log.status("Reading …"):
            loaded = _loaded(names, where.runs)
        with log.status("Simulating …"):
            made, several = _made(loaded, settings)
            if settings.html is not None:
                write_page(made, settings.html)
    _print(made, several, as_json)
    if settings.publish is not None:
        with exit_with_sentence(log):
            plans = [made] if several is None else [plan for _, plan in several.cheapest_first]
            _publish(settings.publish, plans, loaded, settings, log)


def _loaded(names: list[str], runs: Path) -> list[RunData]:
    from analysis.run.load import find_run, load_run

    return [load_run(find_run(name, runs)) for name in dict.fromkeys(names)]


def _made(loaded: list[RunData], settings: PlanSettings) -> tuple[Plan, Alternatives | None]:
    """The cheapest plan, and all of them where there are several engines."""
    from analysis.plan.alternatives import grouped, make_alternatives
    from analysis.plan.answer import make_plan
    from analysis.verdict.summary import summarise

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
    from analysis.plan.terminal.alternatives import print_alternatives
    from analysis.plan.terminal.plan import print_plan

    if as_json:
        document = as_document(made) if several is None else alternatives.as_document(several)
        typer.echo(json.dumps(document, allow_nan=False))
    elif several is None:
        print_plan(stdout(), made)
    else:
        print_alternatives(stdout(), several)


def _publish(address: Address, plans: list[Plan], loaded: list[RunData], settings: PlanSettings, log: Console) -> None:
    """Until Ctrl-C. `plans` are in the order of preference."""
    from prometheus_client import start_http_server

    from analysis.plan.money.prices import read_prices
    from analysis.plan.publish import distinct, published, registry_of

    metas, prices = {one.meta.run_id: one.meta for one in loaded}, read_prices(settings.prices)
    kept, left_out = distinct([published(plan, metas[plan.runs[0]], settings, prices) for plan in plans])
    for one in left_out:
        log.print(
            f"{one.plan.label} is not published: a better plan has the same engine, model and GPU ({one.gpu}). "
            "--gpu LABEL=NAME tells GPU types apart."
        )
    host, port = address
    try:
        _, thread = start_http_server(port, host, registry_of(kept))
    except OSError as error:
        raise ValueError(
            f"cannot listen on {write_address(address)} ({error.strerror}): give another --publish."
        ) from None
    log.print(f"{len(kept)} plan{'s' * (len(kept) != 1)} at http://{write_address(address)}/metrics; Ctrl-C ends it")
    with suppress(KeyboardInterrupt):
        while True:
            thread.join(0.5)  # without a timeout, a signal that another thread receives would not end it


def _check(settings: PlanSettings, runs: list[str], runs_folder: Path, as_json: bool, log: Console) -> None:
    """Exit code 1 where servers are worse than predicted, 2 where nothing could be compared."""
    from analysis.console import stdout
    from analysis.plan.basis import read_basis
    from analysis.plan.evidence import check
    from analysis.plan.evidence.prometheus import Prometheus
    from analysis.plan.terminal.check import print_check

    assert settings.check is not None
    with log.status("Reading …"):
        basis = read_basis(_loaded(runs, runs_folder), settings.allow_drift)
    with log.status("Comparing …"):
        found = check.check(Prometheus(settings.check, settings.check_select), basis, settings)
    if as_json:
        typer.echo(json.dumps(check.as_document(found), allow_nan=False))
    else:
        print_check(stdout(), found)
    if found.worse or not found.judged:
        raise typer.Exit(1 if found.worse else 2)
