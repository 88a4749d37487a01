"""The plan in a terminal: the answer, what it comes to, then warnings and tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from analysis.console import ruled_table, warning
from analysis.plan.accuracy import ERRORS, HeldOut
from analysis.plan.alternatives import Alternatives
from analysis.plan.document import (
    ALTERNATIVE_COLUMNS,
    ERRORS_MEAN,
    alternative_rows,
    bill_rows,
    facts_of,
    first_screen,
    warnings_of,
)
from analysis.plan.fleet import Attainment
from analysis.plan.plan import Plan
from analysis.plan.requests import Band
from records.formatting import format_share, significant
from records.load import Users


def print_plan(console: Console, plan: Plan) -> None:
    console.print(Text(plan.sentence, style="bold"))
    console.print()
    _print_pairs(console, first_screen(plan))
    for text in warnings_of(plan):
        console.print(warning(f"{text}."))
    if plan.next_run is not None:
        console.print(Text(f"Next: {plan.next_run}", style="dim"), soft_wrap=True)
    console.print()
    console.print(_attainments(plan))
    console.print(Text("Requests that meet every objective; brackets hold nine in ten futures.", style="dim"))
    console.print()
    if rows := bill_rows(plan):
        _print_pairs(console, rows)
        console.print()
    _print_pairs(console, facts_of(plan))
    if plan.held_out:
        console.print()
        console.print(_held_out(plan))
        console.print(Text(ERRORS_MEAN, style="dim"))


def print_alternatives(console: Console, alternatives: Alternatives) -> None:
    console.print(Text(alternatives.sentence, style="bold"))
    console.print()
    rows = alternative_rows(alternatives)
    shown = [k for k, _ in enumerate(ALTERNATIVE_COLUMNS) if any(row[k] for row in rows)]
    table = ruled_table()
    for k in shown:
        words = ALTERNATIVE_COLUMNS[k] in {"engine", ""}
        table.add_column(ALTERNATIVE_COLUMNS[k], justify="left" if words else "right")
    for row in rows:
        table.add_row(*(row[k] for k in shown))
    console.print(table)
    text = (
        "Measured and simulated: what one replica holds within the objectives. The rest is predicted at the peak. "
        "Dominated: another is no worse in cost, TTFT p95 and TPOT p50, and better in one."
    )
    console.print(Text(text, style="dim"))
    for alternative in alternatives.all:
        console.print()
        if alternative.plan is None:
            console.print(warning(f"{alternative.name}: {alternative.refused}"))
            continue
        console.print(Text(alternative.name, style="bold"))
        _print_pairs(console, first_screen(alternative.plan))
        for said in warnings_of(alternative.plan):
            console.print(warning(f"{said}."))


def _print_pairs(console: Console, pairs: Sequence[tuple[str, str]]) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in pairs:
        table.add_row(name, Text(text))
    console.print(table)


def _held_out(plan: Plan) -> Table:
    table = ruled_table(["load"], [*ERRORS.values()])
    for held in plan.held_out:
        table.add_row(held.title, *(_error(held, figure) for figure in ERRORS))
    return table


def _error(held: HeldOut, figure: str) -> str:
    error = held.error(figure)
    if math.isnan(error):
        return "n/a"
    return "0.0 %" if abs(error) < 0.0005 else f"{100 * error:+.1f} %"


def _attainments(plan: Plan) -> Table:
    judged = ("attainment", *_each(plan, map(str, plan.replicas.chosen.objectives)))
    table = ruled_table(right=("replicas", "each", "futures", *judged, "in flight", "tokens/s"))
    for attainment in (plan.replicas.fewer, plan.replicas.chosen):
        if attainment is not None:
            table.add_row(*_row(plan, attainment))
    return table


def _each(plan: Plan, columns: Iterable[str]) -> list[str]:
    """Of one objective alone, its share is the attainment."""
    return list(columns) if len(plan.replicas.chosen.objectives) > 1 else []


def _row(plan: Plan, at: Attainment) -> list[str]:
    each = plan.load.value / at.replicas
    load = f"{each:.3g} users" if isinstance(plan.load, Users) else f"{each:.3g} req/s"
    shares = [share_band(at.share), *_each(plan, map(share_band, at.of))]
    return [f"{at.replicas}", load, format_share(at.met), *shares, significant(at.in_flight), significant(at.output)]


def share_band(band: Band) -> str:
    low, high = (format_share(end).removesuffix(" %") for end in (band.low, band.high))
    return f"{format_share(band.median)} [{low}, {high}]"
