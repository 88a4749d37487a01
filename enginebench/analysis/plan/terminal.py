"""The plan in a terminal: the answer, what it comes to, then warnings and tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from enginebench.analysis.console import TextTable, print_table, warning
from enginebench.analysis.first_screen import FirstScreen, print_first_screen
from enginebench.analysis.plan.accuracy import ERRORS, HeldOut
from enginebench.analysis.plan.alternatives import Alternatives
from enginebench.analysis.plan.document import ERRORS_MEAN, alternatives_table, bill_rows, facts_of, warnings_of
from enginebench.analysis.plan.fleet import Attainment
from enginebench.analysis.plan.plan import Plan
from enginebench.analysis.plan.requests import Band
from enginebench.records.formatting import MISSING, format_share, significant
from enginebench.records.load import Users


def print_plan(console: Console, alternatives: Alternatives, screen: FirstScreen) -> None:
    print_first_screen(console, screen)
    several = len(alternatives.all) > 1
    if several:
        print_table(console, alternatives_table(alternatives), ("attainment",))
    lines: list[Text] = []
    for alternative in alternatives.all:
        named = f"{alternative.name}: " if several else ""
        texts = [str(alternative.refused)] if alternative.plan is None else warnings_of(alternative.plan)
        lines += [warning(f"{named}{text.rstrip('.')}.") for text in texts]
        if alternative.plan is not None and alternative.plan.next_run is not None:
            lines.append(Text(f"{named}Next: {alternative.plan.next_run}", style="dim"))
    for line in [*lines, *([Text("")] if lines else [])]:
        console.print(line)
    if not several:
        _print_details(console, alternatives.cheapest)


def _print_details(console: Console, plan: Plan) -> None:
    """What the plan rests on."""
    objectives = [str(objective) for objective in plan.replicas.chosen.objectives]
    print_table(console, _attainments(plan), ("in flight", "tokens/s", *objectives))
    if rows := bill_rows(plan):
        _print_pairs(console, rows)
        console.print()
    _print_pairs(console, facts_of(plan))
    console.print()
    print_table(console, _held_out(plan))


def _print_pairs(console: Console, pairs: Sequence[tuple[str, str]]) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in pairs:
        table.add_row(name, Text(text))
    console.print(table)


def _held_out(plan: Plan) -> TextTable:
    known = [held for held in plan.held_out if not all(math.isnan(held.error(figure)) for figure in ERRORS)]
    rows = tuple((held.title, *(_error(held, figure) for figure in ERRORS)) for held in known)
    return TextTable("Held-out loads", ("load", *ERRORS.values()), rows, (0,), ERRORS_MEAN)


def _error(held: HeldOut, figure: str) -> str:
    error = held.error(figure)
    if math.isnan(error):
        return MISSING
    return "0.0 %" if abs(error) < 0.0005 else f"{100 * error:+.1f} %"


def _attainments(plan: Plan) -> TextTable:
    judged = ("attainment", *_each(plan, map(str, plan.replicas.chosen.objectives)))
    headers = ("replicas", "each", "futures", *judged, "in flight", "tokens/s")
    known = [each for each in (plan.replicas.fewer, plan.replicas.chosen) if each is not None]
    caption = "Requests that meet every objective; brackets hold nine in ten futures."
    return TextTable("Fleets", headers, tuple(tuple(_row(plan, each)) for each in known), (), caption)


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
