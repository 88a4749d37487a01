"""Several engines, settings or GPU types side by side, in a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from analysis.console import ruled_table, warning
from analysis.plan.alternatives import Alternative, Alternatives
from analysis.plan.answer import dollars
from analysis.plan.facts import warnings_of
from analysis.plan.terminal import share_band
from records.formatting import format_seconds


def print_alternatives(console: Console, found: Alternatives) -> None:
    cost = "cost an hour" if found.priced else ""
    table = ruled_table(("engine",), ("replicas", cost, "attainment", "TTFT p95", "TPOT p50"), ("",))
    for one in found.all:
        table.add_row(*_row(found, one))
    console.print(table)
    console.print(Text("Predicted at the peak. Dominated: another one is no worse in all three, and better in one.",
                       style="dim"))  # fmt: skip
    for one in found.all:
        if one.refused is not None:
            console.print(warning(f"{one.name}: {one.refused}"))
        for said in warnings_of(one.plan) if one.plan is not None else ():
            console.print(warning(f"{one.name}: {said}."))
    console.print(Text(found.sentence, style="bold"))


def _row(found: Alternatives, one: Alternative) -> list[str]:
    if one.plan is None:
        return [one.name, *[""] * 5, "no plan"]
    replicas, chosen = one.plan.replicas, one.plan.replicas.chosen
    spares = f" + {one.plan.spares}" if one.plan.spares else ""
    by = found.dominated_by(one.name)
    return [
        one.name,
        f"{replicas.count} [{replicas.low}, {replicas.high}]{spares}",
        dollars(found.cost(one.plan)) if found.priced else "",
        share_band(chosen.share),
        format_seconds(chosen.ttft_p95.median),
        format_seconds(chosen.tpot_p50.median),
        "on the front" if by is None else f"dominated by {by}",
    ]
