"""Charts over the loads: a line for each engine through what was measured, and nothing beyond it.

A band or a bar is a 95 % interval, and a hollow mark has none. A cross at the top is a percentile that falls among
failed requests.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from analysis.compare.capacity import SloCapacity, load_text
from analysis.compare.engine_runs import over_runs
from analysis.report import charts
from analysis.report.axis import Axis, Place
from analysis.report.charts import Chart, Row, Spec, Styles, data, layer, nominal, quantitative
from analysis.report.figure import Drawn, Figure, figure
from records.formatting import MISSING, Unit, format_seconds
from records.metrics import Column, Metric
from records.telemetry import GAUGES
from records.view import Estimate, TurnView

HELD = "A vertical line is the highest measured load at which an engine meets all objectives."
FAILED = "A cross at the top is a percentile that falls among failed requests."
NAMED = 3  # engines whose capacity a title states
MEMORY = [name for name, gauge in GAUGES.items() if gauge.unit == "B"]
GPUS = "gpus"  # the gauge that is a number of devices
LETTER = 7  # pixels of one in the name of a stage
TABLE = {"engine": "engine", "stage": "stage", "value": "text", "95 % interval": "interval"}
Point = tuple[str, Place, Estimate]
"""An engine, a place on the axis, and the value there."""


def column_figure(drawn: Drawn, column: Column) -> Figure | None:
    """A declared statistic, with the SLO's limits to its metric and the loads that engines hold within the SLO."""
    points = [(engine.label, place, engine.column(place.label, column)) for engine, place in drawn.measured]
    unit = charts.unit_of(column.unit, [estimate.value for _, _, estimate in points])
    rows = load_rows(points, unit)
    if all(row["value"] is None for row in rows):
        return None
    limits = [{"text": limit.text, "value": limit.limit * unit.scale} for limit in drawn.limits(column)]
    held = [capacity for capacity in drawn.capacities if limits and capacity.met is not None]
    marks = [{"engine": capacity.engine, "load": capacity.met, "text": capacity.bracket} for capacity in held]
    name = f"{column.of.title} {column.statistic}" if isinstance(column.of, Metric) else column.of.title
    title = name[0].upper() + name[1:] + (f", in {unit.word or unit.name}" if unit.name else "")
    title += f": {capacity_title(held)}" if held else ""
    notes = [HELD] * bool(held) + [FAILED] * any(row["failed"] for row in rows)
    chart = over_loads(rows, drawn.styles, drawn.axis, limits, marks)
    return figure(column.key.replace(" ", "-"), title, " ".join(notes), chart, TABLE, rows, drawn.names)


def capacity_title(held: Iterable[SloCapacity]) -> str:
    """`A holds 20 users within the SLO, B 14`."""
    first, *others = sorted(held, key=lambda capacity: capacity.met or 0.0, reverse=True)[:NAMED]
    most = f"{first.engine} holds {load_text(first.met)} {first.unit} within the SLO"
    return ", ".join([most, *(f"{other.engine} {load_text(other.met)}" for other in others)])


def turns_figure(drawn: Drawn) -> Figure | None:
    """TTFT by turn, at the last stage that has conversations."""
    stages = [place.label for engine, place in drawn.measured if any(view.turns for view in engine.at(place.label))]
    if not stages:
        return None
    last = max(stages, key=drawn.axis.labels.index)
    points, table = [], []
    for engine in drawn.engines:
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
    unit = charts.unit_of("s", [ttft.value for _, _, ttft in points])
    rows = load_rows(points, unit)
    if all(row["value"] is None for row in rows):
        return None
    axis = Axis("turn", True, tuple({place.at: place for _, place, _ in sorted(points, key=_at)}.values()))
    title = f"Median TTFT of the turns of conversations at {last}, in {unit.word}"
    chart, fields = over_loads(rows, drawn.styles, axis), {name: name for name in table[0]}
    return figure("turns", title, "Each turn sends all before it.", chart, fields, table, drawn.names)


def _at(point: Point) -> float:
    return point[1].at


def memory_figure(drawn: Drawn) -> Figure | None:
    """Device memory first, where there is a GPU, and the host's beside it."""
    names = sorted(MEMORY, key=lambda name: not name.startswith("gpu"))
    return _gauges(drawn, "memory", "Memory, mean over each stage", names)


def gauges_figure(drawn: Drawn) -> Figure | None:
    names = [name for name in GAUGES if name not in {*MEMORY, GPUS}]
    return _gauges(drawn, "gauges", "What the servers reported, mean over each stage", names)


def _gauges(drawn: Drawn, key: str, title: str, names: Iterable[str]) -> Figure | None:
    rows: list[Row] = []
    for name in names:
        points = []
        for engine, place in drawn.measured:
            levels = [level for view in engine.at(place.label) if (level := view.gauges.get(name)) is not None]
            if levels:
                mean = over_runs([Estimate(level.mean, why="a mean over the window") for level in levels])
                mean = mean.within(0.0, 1.0) if GAUGES[name].unit == "share" else mean
                points.append((engine.label, place, mean))
        unit = charts.unit_of(GAUGES[name].unit, [mean.value for _, _, mean in points])
        rows += [{"gauge": gauge_title(name, unit)} | row for row in load_rows(points, unit)]
    if not rows:
        return None
    return figure(key, title, "", panels(rows, drawn.styles, drawn.axis), {"gauge": "gauge"} | TABLE, rows, drawn.names)


def gauge_title(name: str, unit: Unit) -> str:
    return f"{GAUGES[name].title}, {unit.name}".removesuffix(", ")


def load_rows(points: Iterable[Point], unit: Unit) -> list[Row]:
    """A row for each value that was measured, in `unit`; a failed one has none. An interval without an upper end is not
    bounded."""
    return [_row(*point, unit) for point in points if point[2].value is not None]


def _row(engine: str, place: Place, estimate: Estimate, unit: Unit) -> Row:
    failed = estimate.value == math.inf
    ends = {"value": estimate.value, "low": None if failed else estimate.low, "high": None if failed else estimate.high}
    interval = f"{MISSING}, {estimate.why}" if estimate.why else MISSING
    if estimate.low is not None and estimate.high is not None:
        high = "∞" if estimate.unbounded else unit.write(estimate.high)
        interval = f"{unit.write(estimate.low)} to {high} {unit.name}".rstrip()
    return {
        "engine": engine,
        "stage": place.label,
        "load": place.at,
        **{name: None if end is None or math.isinf(end) else end * unit.scale for name, end in ends.items()},
        "failed": failed,
        "text": f"{unit.write(estimate.value or 0.0)} {'' if failed else unit.name}".rstrip(),
        "interval": interval,
    }


def over_loads(
    rows: Sequence[Row], styles: Styles, axis: Axis, limits: Sequence[Row] = (), capacities: Sequence[Row] = ()
) -> Chart:
    """`limits` are the SLO's, with `value` and `text`; `capacities` the loads that engines hold within it, with
    `engine`, `load` and `text`."""
    values = [row[end] for row in rows for end in ("value", "low", "high") if row[end] is not None]
    scale = charts.value_scale([*values, *(limit["value"] for limit in limits)])
    x, y = _place(axis), quantitative("value", scale=scale, axis=charts.value_axis())
    layers = [*_capacities(capacities, styles, x), *_limits(limits, y), *_series(styles, x, y, scale["domain"][1])]
    return charts.draw({**data(rows), "layer": layers, "width": charts.WIDTH, "height": charts.HEIGHT})


def panels(rows: Sequence[Row], styles: Styles, axis: Axis) -> Chart:
    """A small chart for each `gauge` of the rows, which has an axis of values of its own."""
    x, y = _place(axis), quantitative("value", scale={"zero": True}, axis=charts.value_axis(ticks=4))
    panel = {"layer": _series(styles, x, y), "width": charts.WIDTH / 2 - 20, "height": charts.HEIGHT / 2}
    gauges = nominal("gauge", title=None, sort=list(dict.fromkeys(row["gauge"] for row in rows)))
    apart = {"scale": {"y": "independent"}, "axis": {"x": "independent"}}
    whole = {"facet": gauges, "columns": 2, "spacing": 18, "resolve": apart, "spec": panel}
    return charts.draw({**data(rows), **whole})


def _series(styles: Styles, x: Spec, y: Spec, top: float | None = None) -> list[Spec]:
    """Lines, intervals and marks. What lies beyond all that was observed is drawn at `top`."""
    known, served, failed = ({"filter": test} for test in ("isValid(datum.low)", "!datum.failed", "datum.failed"))
    bounded = {"calculate": f"isValid(datum.low) && !isValid(datum.high) ? {top or 0} : datum.high", "as": "high"}
    risen = {"calculate": f"datum.failed ? {top or 0} : datum.value", "as": "value"}
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
        layer(charts.LINE, at, served, params=[charts.zoom("xy" if x["type"] == "quantitative" else "y")]),
        layer(charts.POINT, at | marks, served),
        layer(cross, at | {"y": {"value": 0}, "tooltip": tooltip}, failed),
    ]


def _place(axis: Axis) -> Spec:
    """Loads where they are; named stages at equal distances."""
    if axis.quantitative:
        loads = {"values": [place.at for place in axis.places], "grid": False, "labelOverlap": True, "format": ",.6~r"}
        scale = {"zero": False, "nice": False, "padding": 16}
        return quantitative("load", title=axis.title, scale=scale, axis=loads)
    crowded = sum(map(len, axis.labels)) * LETTER > charts.WIDTH
    names = {"grid": False, "labelOverlap": True, "labelAngle": -35 if crowded else 0, "labelLimit": 140}
    return {"field": "stage", "type": "ordinal", "sort": list(axis.labels), "title": None, "axis": names}


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
