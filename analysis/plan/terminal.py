"""The plan in a terminal: the engine's model, its errors, what was measured, and the answer."""

from __future__ import annotations

import math
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from analysis.console import ruled_table, warning
from analysis.plan.answer import Plan, dollars
from analysis.plan.bill import MILLION, Bill
from analysis.plan.facts import ERRORS, ERRORS_MEAN, facts_of, warnings_of
from analysis.plan.hold_out import HeldOut
from analysis.plan.outcome import Band
from analysis.plan.replicas import Attainment
from records.formatting import format_share, significant
from records.load import Users


def print_plan(console: Console, plan: Plan) -> None:
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column(overflow="fold")
    for name, text in facts_of(plan):
        facts.add_row(name, Text(text))
    console.print(facts)
    console.print()
    if plan.held_out:
        console.print(_held_out(plan))
        console.print(Text(ERRORS_MEAN, style="dim"))
        console.print()
    for said in warnings_of(plan):
        console.print(warning(f"{said}."))
    console.print(_attainments(plan))
    console.print(Text("Shares of requests that meet every objective; brackets hold nine in ten seeds.", style="dim"))
    console.print()
    if plan.bill is not None:
        _print_bill(console, plan, plan.bill)
    if plan.kilowatts is not None and plan.joules_per_token is not None:
        each, all_of_it = significant(plan.joules_per_token), significant(plan.kilowatts)
        console.print(f"Energy: {each} J per output token as measured, {all_of_it} kW of the fleet at the peak.")
        console.print()
    if plan.next_run is not None:
        console.print(Text(f"Next: {plan.next_run}", style="dim"), soft_wrap=True)
    console.print(Text(plan.sentence, style="bold"))


def _held_out(plan: Plan) -> Table:
    table = ruled_table(["load"], [*ERRORS.values()])
    for one in plan.held_out:
        table.add_row(one.title, *(_error(one, figure) for figure in ERRORS))
    return table


def _error(one: HeldOut, figure: str) -> str:
    error = one.error(figure)
    if math.isnan(error):
        return "n/a"
    return "0.0 %" if abs(error) < 0.0005 else f"{100 * error:+.1f} %"


def _attainments(plan: Plan) -> Table:
    judged = ("attainment", *_each(plan, map(str, plan.objectives)))
    table = ruled_table(right=("replicas", "each", *judged, "in flight", "tokens/s"))
    for one in (plan.replicas.fewer, plan.replicas.chosen):
        if one is not None:
            table.add_row(*_row(plan, one))
    return table


def _each(plan: Plan, columns: Iterable[str]) -> list[str]:
    """Of one objective alone, its share is the attainment."""
    return list(columns) if len(plan.objectives) > 1 else []


def _print_bill(console: Console, plan: Plan, bill: Bill) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row(
        "cost", f"{dollars(bill.per_hour)} an hour, {dollars(bill.per_month)} a month for {plan.count} replicas"
    )
    if plan.price_source is not None:
        table.add_row("price", f"of a GPU: {plan.price_source}")
    prompts = bill.per_million_prompt_tokens
    parts = [f"{dollars(prompts)} per million prompt tokens"] if prompts is not None else []
    parts += [f"{dollars(bill.per_million_output_tokens)} per million output tokens"]
    parts += [f"{dollars(bill.per_thousand_requests)} per thousand requests"]
    table.add_row("at the peak", ", ".join(parts))
    for one in bill.hosted:
        said = f"{dollars(one.per_thousand_requests)} per thousand requests; the fleet costs less from "
        reach = "" if one.cheaper else ", more than it can serve"
        table.add_row(
            one.name, f"{said}{significant(one.break_even / MILLION)} million a month on{reach} ({one.source})"
        )
    console.print(table)
    console.print()


def _row(plan: Plan, one: Attainment) -> list[str]:
    each = plan.load.value / one.replicas
    load = f"{each:.3g} users" if isinstance(plan.load, Users) else f"{each:.3g} req/s"
    shares = [share_band(one.share), *_each(plan, map(share_band, one.of))]
    return [f"{one.replicas}", load, *shares, significant(one.in_flight), significant(one.output)]


def share_band(band: Band) -> str:
    low, high = (format_share(end).removesuffix(" %") for end in (band.low, band.high))
    return f"{format_share(band.median)} [{low}, {high}]"
