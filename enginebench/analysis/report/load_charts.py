"""Charts over the loads: a line for each engine through what was measured, and nothing beyond it.

A band or a bar is a 95 % interval, and a hollow mark has none. A cross at the top is a percentile that falls among
failed requests.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from enginebench.analysis.compare.capacity import SloCapacity, load_text
from enginebench.analysis.compare.engine_runs import GPUS, over_runs
from enginebench.analysis.report import charts
from enginebench.analysis.report.axis import Axis, Place
from enginebench.analysis.report.charts import Chart, Row, Spec, Styles, data, layer, nominal, quantitative
from enginebench.analysis.report.figure import Figure, FigureSource, figure
from enginebench.records.formatting import MISSING, ShownUnit, column_unit, format_seconds
from enginebench.records.metrics import Column, Metric
from enginebench.records.telemetry import GAUGES
from enginebench.records.view import Estimate, TurnView

HELD = "A vertical line is the highest measured load at which an engine meets all objectives."
CROSSES = "A cross at the top is a percentile that falls among failed requests."
NAMED = 3  # engines whose capacity a title states
MEMORY = [name for name, gauge in GAUGES.items() if gauge.unit == "B"]
LETTER = 7  # pixels of one in the name of a stage
TABLE = {"engine": "engine", "stage": "stage", "value": "text", "95 % interval": "interval"}
Point = tuple[str, Place, Estimate]
"""An engine, a place on the axis, and the value there."""


def column_figure(source: FigureSource, column: Column) -> Figure | None:
    """A declared statistic, with the SLO's limits to its metric and the loads that engines hold within the SLO."""
    points = [(engine.label, place, engine.column(place.label, column)) for engine, place in source.measured]
    unit = column_unit(column.unit, [estimate.value for _, _, estimate in points])
    rows = load_rows(points, unit)
    if all(row["value"] is None for row in rows):
        return None
    limits = [{"text": limit.text, "value": limit.limit * unit.scale} for limit in source.limits(column)]
    held = [capacity for capacity in source.capacities if limits and capacity.met is not None]
    marks = [{"engine": capacity.engine, "load": capacity.met, "text": capacity.bracket} for capacity in held]
    name = f"{column.of.title} {column.statistic}" if isinstance(column.of, Metric) else column.of.title
    title = name[0].upper() + name[1:] + (f", in {unit.word or unit.name}" if unit.name else "")
    title += f": {capacity_title(held)}" if held else ""
    notes = [HELD] * bool(held) + [CROSSES] * any(row["failed"] for row in rows)
    chart = over_loads(rows, source.styles, source.axis, limits, marks)
    return figure(column.key.replace(" ", "-"), title, " ".join(notes), chart, TABLE, rows, source.names)


def capacity_title(held: Iterable[SloCapacity]) -> str:
    """`A holds 20 users within the SLO, B 14`."""
    first, *others = sorted(held, key=lambda capacity: capacity.met or 0.0, reverse=True)[:NAMED]
    most = f"{first.engine} holds {load_text(first.met, first.unit)} within the SLO"
    return ", ".join([most, *(f"{other.engine} {load_text(other.met)}" for other in others)])


def turns_figure(source: FigureSource) -> Figure | None:
    """TTFT by turn, at the last stage that has conversations."""
    stages = [place.label for engine, place in source.measured if any(view.turns for view in engine.at(place.label))]
    if not stages:
        return None
    last = max(stages, key=source.axis.labels.index)
    points, table = [], []
    for engine in source.engines:
        turns: dict[int, list[TurnView]] = {}
        for turn in (turn for view in engine.at(last) for turn in view.turns):
            turns.setdefault(turn.turn, []).append(turn)
        for number, views in sorted(turns.items()):
            if len(views) < len(engine.at(last)):
                continue  # some run lacks it
            ttft = over_runs([view.ttft for view in views])
            lengths = [view.prompt_tokens for view in views if view.prompt_tokens is not None]
            points.append((engine.label, Place(str(number), number, str(number)), ttft))
            row = {"engine": engine.label, "turn": number, "requests": sum(view.requests for view in views)}
            length = sum(lengths) / len(lengths) if lengths else None
            table.append(row | {"prompt tokens": length, "TTFT p50": format_seconds(ttft.value)})
    unit = column_unit("s", [ttft.value for _, _, ttft in points])
    rows = load_rows(points, unit)
    if all(row["value"] is None for row in rows):
        return None
    axis = Axis("turn", True, tuple({place.at: place for _, place, _ in sorted(points, key=_at)}.values()))
    title = f"Median TTFT of the turns of conversations at {last}, in {unit.word}"
    chart, fields = over_loads(rows, source.styles, axis), {name: name for name in table[0]}
    return figure("turns", title, "Each turn sends all before it.", chart, fields, table, source.names)


def _at(point: Point) -> float:
    return point[1].at


def memory_figure(source: FigureSource) -> Figure | None:
    """Device memory first, where there is a GPU, and the host's beside it."""
    names = sorted(MEMORY, key=lambda name: not name.startswith("gpu"))
    return _gauges(source, "memory", "Memory, mean over each stage", names)


def gauges_figure(source: FigureSource) -> Figure | None:
    names = [name for name in GAUGES if name not in {*MEMORY, GPUS}]
    return _gauges(source, "gauges", "What the servers reported, mean over each stage", names)


def _gauges(source: FigureSource, key: str, title: str, names: Iterable[str]) -> Figure | None:
    rows: list[Row] = []
    for name in names:
        points = []
        for engine, place in source.measured:
            levels = [level for view in engine.at(place.label) if (level := view.gauges.get(name)) is not None]
            if levels:
                mean = over_runs([Estimate(level.mean) for level in levels])
                mean = mean.within(0.0, 1.0) if GAUGES[name].unit == "share" else mean
                points.append((engine.label, place, mean))
        unit = column_unit(GAUGES[name].unit, [mean.value for _, _, mean in points])
        rows += [{"gauge": gauge_title(name, unit)} | row for row in load_rows(points, unit)]
    if not rows:
        return None
    chart, fields = panels(rows, source.styles, source.axis), {"gauge": "gauge", **TABLE}
    return figure(key, title, "", chart, fields, rows, source.names)


def gauge_title(name: str, unit: ShownUnit) -> str:
    title = GAUGES[name].title
    return f"{title}, {unit.name}" if unit.name not in title else title


def load_rows(points: Iterable[Point], unit: ShownUnit) -> list[Row]:
    """A row for each value that was measured, in `unit`; a failed one has none. An interval without an upper end is not
    bounded."""
    return [_row(*point, unit) for point in points if point[2].value is not None]


def _row(engine: str, place: Place, estimate: Estimate, unit: ShownUnit) -> Row:
    failed = estimate.value == math.inf
    ends = {"value": estimate.value, "low": None if failed else estimate.low, "high": None if failed else estimate.high}
    interval = f"none ({estimate.missing.value})" if estimate.missing and not failed else MISSING
    if estimate.low is not None and estimate.high is not None and math.isfinite(estimate.low):
        high = "∞" if estimate.unbounded else _text(estimate.high, unit)
        interval = f"{_text(estimate.low, unit)} to {high}"
    return {
        "engine": engine,
        "stage": place.label,
        "load": place.at,
        **{name: None if end is None or math.isinf(end) else end * unit.scale for name, end in ends.items()},
        "failed": failed,
        "text": _text(estimate.value or 0.0, unit),
        "interval": interval,
    }


def _text(value: float, unit: ShownUnit) -> str:
    return unit.write(value) if math.isinf(value) else f"{unit.write(value)} {unit.name}".rstrip()


def over_loads(
    rows: Sequence[Row], styles: Styles, axis: Axis, limits: Sequence[Row] = (), capacities: Sequence[Row] = ()
) -> Chart:
    """`limits` are the SLO's, with `value` and `text`; `capacities` the loads that engines hold within it, with
    `engine`, `load` and `text`."""
    x, y = _place(axis), _values(rows, [limit["value"] for limit in limits])
    rules = [*_capacities(capacities, styles, x), *_limits(limits, y)]
    layers = [*rules, *_series(styles, x, y, params=[charts.zoom("xy" if axis.quantitative else "y")])]
    return charts.chart_of({**data(rows), "layer": layers, "width": charts.WIDTH, "height": charts.HEIGHT})


def panels(rows: Sequence[Row], styles: Styles, axis: Axis) -> Chart:
    """A small chart for each `gauge` of the rows, which has an axis of values of its own."""
    size = {"width": charts.WIDTH / 2 - 20, "height": charts.HEIGHT / 2}
    drawings: list[Spec] = []
    names: list[str] = []
    for gauge in dict.fromkeys(row["gauge"] for row in rows):
        own = [row for row in rows if row["gauge"] == gauge]
        names.append(f"gauge_{len(names)}")
        layers = _series(styles, _place(axis), _values(own, ticks=4), name=names[-1])
        drawings.append({**data(own), "layer": layers, "title": gauge, **size})
    zoom = [charts.zoom("x", *names)] if axis.quantitative else []
    return charts.chart_of({"concat": drawings, "columns": 2, "spacing": 18, "params": zoom})


def _values(rows: Sequence[Row], others: Sequence[float] = (), ticks: int = 6) -> Spec:
    values = [row[end] for row in rows for end in ("value", "low", "high") if row[end] is not None]
    return quantitative(
        "value", title=None, scale=charts.value_scale([*values, *others]), axis=charts.value_axis(ticks=ticks)
    )


def _place(axis: Axis) -> Spec:
    """Loads where they are; named stages at equal distances."""
    if axis.quantitative:
        loads = [place.at for place in axis.places]
        margin = (loads[-1] - loads[0]) * 0.04 or 1
        scale = {"domain": [loads[0] - margin, loads[-1] + margin], "nice": False, "zero": False}
        marks = {"values": loads, "grid": False, "labelOverlap": True, "format": ",.6~r"}
        return quantitative("load", title=axis.title, scale=scale, axis=marks)
    crowded = sum(map(len, axis.labels)) * LETTER > charts.WIDTH
    names = {"grid": False, "labelOverlap": True, "labelAngle": -35 if crowded else 0, "labelLimit": 140}
    return {"field": "stage", "type": "ordinal", "scale": {"domain": list(axis.labels)}, "title": None, "axis": names}


def _series(styles: Styles, x: Spec, y: Spec, **of_lines: Any) -> list[Spec]:
    """Lines, intervals and marks. What lies beyond all that was observed is drawn at the end of the axis."""
    top = y["scale"]["domain"][1]
    known, served, failed = ({"filter": test} for test in ("isValid(datum.low)", "!datum.failed", "datum.failed"))
    bounded = {"calculate": f"isValid(datum.low) && !isValid(datum.high) ? {top} : datum.high", "as": "high"}
    risen = {"calculate": f"datum.failed ? {top} : datum.value", "as": "value"}
    at = {"x": x, "y": y, "color": charts.by_colour(styles)}
    spread = at | {"y": y | {"field": "low"}, "y2": {"field": "high"}}
    tooltip = [nominal("engine"), nominal("stage", title="at"), nominal("text", title="value"), nominal("interval")]
    filled = {"condition": {"test": "isValid(datum.low)", **charts.by_colour(styles)}, "value": charts.PAGE}
    marks = {"shape": charts.by_shape(styles), "fill": filled, "tooltip": tooltip}
    cross = {"type": "text", "text": "✕", "fontSize": 15, "fontWeight": 700}
    return [
        layer(charts.BAND, spread, bounded),
        layer(charts.BAR, spread, known, bounded),
        layer(charts.LINE | {"strokeDash": [3, 3], "opacity": 0.6}, at, risen),
        layer(charts.LINE, at, served, **of_lines),
        layer(charts.POINT, at | marks, served),
        layer(cross, at | {"y": {"value": 0}, "tooltip": tooltip}, failed),
    ]


def _limits(limits: Sequence[Row], y: Spec) -> list[Spec]:
    """A line for each, with its name below it."""
    rule = {"type": "rule", "strokeDash": [6, 4], "color": charts.INK}
    name = {"type": "text", "align": "left", "baseline": "top", "dx": 4, "dy": 4, "color": charts.INK}
    named = {"y": y, "x": {"value": 0}, "text": nominal("text")}
    layers: list[Spec] = [{"mark": rule, "encoding": {"y": y}}, {"mark": name, "encoding": named}]
    return [part | data(limits) for part in layers] if limits else []


def _capacities(capacities: Sequence[Row], styles: Styles, x: Spec) -> list[Spec]:
    """A line for each; those of engines that hold the same load stand side by side."""
    rule = {"type": "rule", "strokeDash": [2, 3], "strokeWidth": 1.75, "xOffset": {"expr": "2.5 * (datum.beside - 1)"}}
    beside = {"window": [{"op": "count", "as": "beside"}], "groupby": ["load"]}
    told = [nominal("engine"), nominal("text", title="within the SLO")]
    encoding = {"x": x, "color": charts.by_colour(styles), "tooltip": told}
    return [layer(rule, encoding, beside, **data(capacities))] if capacities else []
