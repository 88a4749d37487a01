"""Predictions against what servers did, in a terminal."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from rich.console import Console
from rich.text import Text

from analysis.console import ruled_table, warning
from analysis.plan.evidence.check import Check
from analysis.plan.simulation.outcome import Band
from analysis.plan.terminal.plan import share_band
from analysis.units import format_seconds, format_share


def print_check(console: Console, found: Check) -> None:
    table = ruled_table(("until (UTC)", "load", "figure"), ("predicted", "actual"), ("",))
    for part in found.parts:
        until = datetime.fromtimestamp(part.end, UTC).strftime("%m-%d %H:%M:%S")
        if part.served is None or not part.figures:
            table.add_row(until, "no requests" if part.served is None else "not compared")
            continue
        load = f"{part.served.rate:.3g} req/s, {part.served.replicas} replica{'s' * (part.served.replicas != 1)}"
        for k, one in enumerate(part.figures):
            share = not one.higher_is_worse
            table.add_row(*((until, load) if k == 0 else ("", "")), one.name, _band(one.predicted, share),
                          _range(one.low, one.high, share), one.verdict)  # fmt: skip
    console.print(table)
    console.print(
        Text(
            "Brackets hold nine in ten seeds. A percentile is known to the servers' bucket that holds it.", style="dim"
        )
    )
    for reason in dict.fromkeys(part.refused for part in found.parts if part.refused is not None):
        console.print(warning(reason))
    console.print(Text(found.sentence, style="bold"))


def _band(of: Band, share: bool) -> str:
    if share:
        return share_band(of)
    return f"{format_seconds(of.median)} [{format_seconds(of.low)}, {format_seconds(of.high)}]"


def _range(low: float, high: float, share: bool) -> str:
    shown = format_share if share else format_seconds
    if low == high:
        return shown(low)
    return f"above {shown(low)}" if math.isinf(high) else f"{shown(low)} to {shown(high)}"
