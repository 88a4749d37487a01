"""The dashboard in a terminal of 80 columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from analysis.units import MISSING, format_bytes, format_seconds, format_share, significant
from analysis.watch.moment import Moment

WIDTH = 80
BLOCKS = "▁▂▃▄▅▆▇█"
HISTORY = 30  # updates


def screen(title: str, history: Sequence[Moment]) -> RenderableType:
    """The newest moment, and sparklines of those before it."""
    now = history[-1]
    table = Table.grid(padding=(0, 1))
    table.add_column(width=12, style="bold")
    table.add_column(width=22, justify="right")
    table.add_column(width=HISTORY)
    for name, value, course in _rows(now, history):
        table.add_row(name, value, Text(course, style="blue"))
    parts: list[RenderableType] = [table]
    parts += [Text(f"! {finding}", style="red") for finding in now.findings]
    ending = "the run is over; " if now.over else ""
    parts.append(Text(f"{ending}q or Ctrl-C quits", style="dim"))
    return Panel(Group(*parts), title=Text(_shortened(title, WIDTH - 8)), title_align="left", width=WIDTH)


def _rows(now: Moment, history: Sequence[Moment]) -> list[tuple[str, str, str]]:
    def course(of: Callable[[Moment], float | None]) -> str:
        return sparkline([of(moment) for moment in history[-HISTORY:]])

    rows = [
        ("users", _count(now.users), course(lambda moment: moment.users)),
        ("in flight", _count(now.in_flight), course(lambda moment: moment.in_flight)),
        ("requests/s", _number(now.rate), course(lambda moment: moment.rate)),
        ("failed", format_share(now.failed), course(lambda one: one.failed)),
        ("tokens/s", _number(now.tokens), course(lambda moment: moment.tokens)),
    ]
    for title in ("TTFT", "TPOT"):
        found = now.latencies.get(title)
        text = f"{_seconds(found.p50)} / {_seconds(found.p99)}" if found is not None else MISSING
        tails = [moment.latencies[title].p99 if title in moment.latencies else None for moment in history[-HISTORY:]]
        rows.append((f"{title} 50/99", text, sparkline(tails)))
    rows += [
        ("running", _count(now.running), course(lambda moment: moment.running)),
        ("queue", _count(now.waiting), course(lambda moment: moment.waiting)),
        ("KV cache", format_share(now.kv), course(lambda moment: moment.kv)),
    ]
    if now.gpu is None and now.power is None:
        rows.append(("GPU", "no GPU here", ""))
    else:
        power = f"{now.power:.0f} W" if now.power is not None else MISSING
        rows.append(
            (
                "GPU",
                f"{format_share(now.gpu)} {format_bytes(now.gpu_memory)} {power}",
                course(lambda moment: moment.gpu),
            )
        )
    return rows


def sparkline(values: Sequence[float | None]) -> str:
    """Blocks between 0 and the largest value; a gap where a value is missing, a full block where it is infinite."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    top = max(finite, default=0.0)
    return "".join(
        " " if value is None else BLOCKS[-1] if math.isinf(value) else BLOCKS[_level(value, top)] for value in values
    )


def _level(value: float, top: float) -> int:
    return min(len(BLOCKS) - 1, int(value / top * len(BLOCKS))) if top > 0 else 0


def _number(value: float | None) -> str:
    return MISSING if value is None else significant(value)


def _count(value: float | None) -> str:
    return MISSING if value is None else f"{value:.0f}"


def _seconds(value: float) -> str:
    return "∞" if math.isinf(value) else format_seconds(value)


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
