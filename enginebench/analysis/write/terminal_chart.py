"""A small chart of a figure for the terminal.

One engine over its loads, or over time, is a plot; several engines are bars at the load of the comparison:

    TTFT p95 at 8 users, SLO ≤ 600 ms
    vLLM       ▇▇▇▇▇▇▇                       ┊   210 ms
    llama.cpp  ▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇  710 ms
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from rich.cells import cell_len

from enginebench.analysis.document import TIMES_LIMIT, Axis, Figure, Point, Series
from enginebench.analysis.write.cells import clean, load_number, place_text
from enginebench.analysis.write.phrases import limit_text, limit_title
from enginebench.analysis.write.scale import Scale, spread
from enginebench.records.formatting import INFINITE, format_value, significant

HEIGHT = 8  # rows of a plot
MAX_WIDTH = 100
MAX_NAME = 24
MIN_GAP = 5  # columns between two labels of a plot's horizontal axis


def chart(figure: Figure, width: int) -> list[str]:
    """Draw lines of at most `width` columns; none if there is too little to draw."""
    series = [part for part in figure.series if any(point.y is not None for point in part.points)]
    width = min(width - 1, MAX_WIDTH)
    if figure.kind == "load" and len(series) > 1:
        return _bars(figure, series, width)
    if figure.kind in {"load", "time"} and len(series) == 1:
        return _plot(figure, series[0], width)
    return []


def _title(figure: Figure, place: str = "") -> str:
    if figure.y.unit == TIMES_LIMIT:
        return f"{clean(figure.y.title)}{place}"
    limit = "" if figure.limit is None else f", {limit_title(figure)}"
    unit = figure.y.unit if figure.y.unit not in {"s", "B", "share", clean(figure.y.title)} else ""
    return f"{clean(figure.y.title)}{f', {unit}' if unit else ''}{place}{limit}"


def _text(value: float, axis: Axis) -> str:
    return INFINITE if math.isinf(value) else format_value(value, axis.unit)


def _bars(figure: Figure, series: Sequence[Series], width: int) -> list[str]:
    counts = Counter(point.x for part in series for point in part.points if point.y is not None)
    x = figure.at if figure.at in counts else max((x for x, n in counts.items() if 2 * n > len(series)), default=None)
    if x is None:
        return []
    points = [(part.name, next((point for point in part.points if point.x == x), Point(x, None))) for part in series]
    finite = [point.y for _, point in points if point.y is not None and math.isfinite(point.y)]
    largest = max(finite, default=0.0)
    if largest <= 0:
        return []
    names = [clean(name)[:MAX_NAME] for name, _ in points]
    margin = max(map(cell_len, names)) + 2
    texts = ["–" if point.y is None else _text(point.y, figure.y) for _, point in points]
    room = max(width - margin - max(map(len, texts)) - 2, 10)
    near = figure.limit is not None and figure.limit <= 2 * largest
    scale = room / max(largest, figure.limit if near and figure.limit is not None else 0.0)
    limit = round(figure.limit * scale) if near and figure.limit is not None else None
    label = next((point.label for _, point in points if point.label), load_number(x))
    lines = [_title(figure, f" at {clean(label)}{'' if figure.x.unit in label else f' {figure.x.unit}'}")]
    for name, text, (_, point) in zip(names, texts, points, strict=True):
        length = 0 if point.y is None else room if point.failed else max(round(point.y * scale), 1)
        bar = list(("░" if point.failed else "▇") * length + " " * (room + 1 - length))
        if limit is not None:
            bar[min(limit, room)] = "┊"
        lines.append(f"{name}{' ' * (margin - cell_len(name))}{''.join(bar)} {text}".rstrip())
    return lines


def _plot(figure: Figure, series: Series, width: int) -> list[str]:
    points = [point for point in series.points if point.y is not None]
    heights = [point.y or 0.0 for point in points]
    finite = [height for height in heights if 0 < height < math.inf]
    if len({point.x for point in points}) < 2 or not finite:
        return []
    values = [*finite, *([figure.limit] if figure.limit else [])]
    low, high = min(values), max(max(values), 1.5 * min(values))
    vertical = Scale(low, high, 0, HEIGHT - 1, "log")  # row 0 is at the bottom; failed requests are in the top row
    labels = {0: _text(low, figure.y), HEIGHT - 1: _text(high, figure.y)}
    if figure.limit:
        labels[round(vertical(figure.limit))] = limit_text(figure)
    margin = max(map(len, labels.values()))
    unit = figure.x.unit or clean(figure.x.title)
    room = width - margin - len(unit) - 4
    if room < MIN_GAP:
        return []
    columns = _columns(points, figure.kind == "load", room)
    canvas = [[" "] * (max(columns) + 1) for _ in range(HEIGHT)]
    if figure.limit:
        canvas[round(vertical(figure.limit))] = ["┄"] * (max(columns) + 1)
    for column, height in zip(columns, heights, strict=True):
        canvas[round(vertical(height))][column] = "▲" if math.isinf(height) else "●" if figure.kind == "load" else "•"
    lines = [_title(figure)]
    lines += [f"{labels.get(k, ''):>{margin}} ┤{''.join(canvas[k]).rstrip()}" for k in reversed(range(HEIGHT))]
    ticks, base = _ticks(columns, points, figure)
    lines += [f"{'':{margin}} └{base} {unit}", f"{'':{margin}}  {ticks}"]
    return lines


def _columns(points: Sequence[Point], logarithmic: bool, width: int) -> list[int]:
    """Return the column of each point. Loads are spread by their logarithm, with room for their labels."""
    first, last = points[0].x, points[-1].x
    if not logarithmic or first <= 0:
        return [round(Scale(first, last, 0, width - 1)(point.x)) for point in points]
    scale = Scale(first, last, 0, width - 1, "log")
    return list(map(round, spread([round(scale(point.x)) for point in points], MIN_GAP, 0, width - 1)))


def _ticks(columns: Sequence[int], points: Sequence[Point], figure: Figure) -> tuple[str, str]:
    """Return the labels below the axis, and the axis with its marks and, over time, spans."""
    width = max(columns) + 1
    base, line = ["─"] * width, ""
    first, last = points[0].x, points[-1].x
    if figure.kind == "time":
        scale = (width - 1) / (last - first)
        for span in figure.spans:
            start, end = (min(max(round((x - first) * scale), 0), width - 1) for x in (span.start, span.end))
            base[start : end + 1] = "▒" * (end + 1 - start)
        places = [(0, first), *((round((s.start - first) * scale), s.start) for s in figure.spans), (width - 1, last)]
    else:
        places = [(column, point.x) for column, point in zip(columns, points, strict=True)]
    for column, x in sorted(places):
        text = place_text(figure.x, x) if figure.kind == "load" else significant(x, 2)
        start = max(column - len(text) // 2, 0)
        if start > len(line) or not line:
            line = f"{line:<{start}}{text}"
            if base[min(column, width - 1)] == "─":
                base[min(column, width - 1)] = "┬"
    return line, "".join(base)
