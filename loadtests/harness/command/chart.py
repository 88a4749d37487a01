"""A small chart for the terminal: a latency against the load, as it grows, with the objective's limit.

    TTFT p95, limit 500 ms
     1.90 s ┤                                             ┊        ●
            ┤                                             ┊   ●
     500 ms ┤┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┊┄┄┄┄┄┄┄┄┄
            ┤                                         ●   ┊
    43.0 ms ┤●         ●          ●         ●             ┊
            └┬─────────┬──────────┬─────────┬─────────┬───────┬────┬ users
             1         2          4         8        16      24   32

Both axes are logarithmic. The limit is crossed between the two loads that a `┊` stands between.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from enginebench.records.formatting import format_seconds, significant
from enginebench.records.metrics import BY_NAME
from enginebench.records.slo import Objective
from enginebench.records.view import StageView

HEIGHT = 8  # rows
WIDTH = 80  # columns of a terminal at least
TTFT = BY_NAME["ttft_user"]
GAP = 5  # columns between two loads at least


@dataclass(frozen=True, slots=True)
class Point:
    """A measured load, and its latency in seconds; `inf` where the percentile is that of a failed request."""

    load: float
    seconds: float


def chart_of(views: Sequence[StageView], objectives: Sequence[Objective], width: int = WIDTH) -> list[str]:
    """Draw the first latency with an objective, else TTFT p95, of the stages with the last one's unit of load."""
    limited = next((objective for objective in objectives if objective.judged is not None), None)
    metric, statistic = (limited.judged or TTFT, limited.statistic) if limited is not None else (TTFT, "p95")
    alike = [view for view in views if view.load_unit == views[-1].load_unit]
    values = [(view.load, view.value(metric.name, statistic)) for view in alike]
    points = [Point(load, value) for load, value in values if value is not None]
    title = f"{metric.title} {statistic}"
    return chart(title, points, limited.limit if limited else None, alike[-1].load_unit if alike else "", width)


def chart(title: str, points: Sequence[Point], limit: float | None, unit: str, width: int = WIDTH) -> list[str]:
    """Lines of at most `width` columns; none for fewer than two loads. Of several points at a load the last counts."""
    by_load = {point.load: point.seconds for point in points if point.load > 0 and point.seconds > 0}
    if len(by_load) < 2:
        return []
    loads = sorted(by_load)
    seconds = [by_load[load] for load in loads]
    rows = _Rows.of([*seconds, *([limit] if limit else [])])
    labels = {row: format_seconds(rows.value(row)) for row in (0, HEIGHT - 1)}
    if limit:
        labels[rows.row(limit)] = format_seconds(limit)
    margin = max(map(len, labels.values()))
    columns = _columns(loads, width - margin - 3 - len(unit) - 2)
    canvas = [[" "] * (columns[-1] + 1) for _ in range(HEIGHT)]
    if limit:
        canvas[rows.row(limit)] = ["┄"] * (columns[-1] + 1)
        crossing = _crossing(seconds, limit)
        if crossing is not None:
            for row in canvas:
                row[(columns[crossing - 1] + columns[crossing]) // 2] = "┊"
    for column, value in zip(columns, seconds, strict=True):
        canvas[rows.row(value)][column] = "●" if math.isfinite(value) else "▲"
    lines = [title if limit is None else f"{title}, limit {format_seconds(limit)}"]
    lines += [f"{labels.get(row, ''):>{margin}} ┤{''.join(canvas[row]).rstrip()}" for row in reversed(range(HEIGHT))]
    axis = ["─"] * (columns[-1] + 1)
    for column in columns:
        axis[column] = "┬"
    lines.append(f"{'':{margin}} └{''.join(axis)} {unit}")
    lines.append(f"{'':{margin}}  {_ticks(columns, loads)}")
    return lines


def _crossing(seconds: Sequence[float], limit: float) -> int | None:
    """The index of the first load beyond the limit, where the one before is within it."""
    beyond = next((index for index, value in enumerate(seconds) if value > limit), None)
    return beyond or None


def _columns(loads: Sequence[float], width: int) -> list[int]:
    """Place the loads by their logarithm, with a gap between neighbours as far as the width allows."""
    span = math.log(loads[-1] / loads[0])
    ideal = [round((width - 1) * math.log(load / loads[0]) / span) for load in loads]
    gap = min(GAP, (width - 1) // max(len(loads) - 1, 1))
    columns = [0]
    for column in ideal[1:]:
        columns.append(max(column, columns[-1] + max(gap, 1)))
    beyond = columns[-1] - (width - 1)
    if beyond > 0:  # those pushed out of the picture are moved back
        for index in range(len(columns) - 1, 0, -1):
            columns[index] = min(columns[index], width - 1 - gap * (len(columns) - 1 - index))
    return columns


def _ticks(columns: Sequence[int], loads: Sequence[float]) -> str:
    line = ""
    for column, load in zip(columns, loads, strict=True):
        text = f"{load:g}" if float(load).is_integer() else significant(load)
        start = max(column - len(text) // 2, 0)
        if start > len(line) or not line:
            line = f"{line:<{start}}{text}"
    return line


@dataclass(frozen=True, slots=True)
class _Rows:
    low: float
    high: float

    @staticmethod
    def of(values: Sequence[float]) -> _Rows:
        finite = [value for value in values if math.isfinite(value)] or [1.0]
        low, high = min(finite), max(finite)
        return _Rows(low, high if high > 1.5 * low else 1.5 * low)

    def row(self, value: float) -> int:
        """Return the row of a value, from 0 at the bottom; that of a failed request is the topmost."""
        if math.isinf(value):
            return HEIGHT - 1
        return min(
            HEIGHT - 1, max(0, round((HEIGHT - 1) * math.log(value / self.low) / math.log(self.high / self.low)))
        )

    def value(self, row: int) -> float:
        return self.low * math.exp(row / (HEIGHT - 1) * math.log(self.high / self.low))
