"""A panel's series as an SVG: its colours, dashes, limits and unit are those of the dashboard's JSON.

Grafana is not part of this: lines stand where its panels have them, and letters, axes and legends are Vega-Lite's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import cycle
from typing import Any

import vl_convert

from docs.pictures.answers import Json, Mark, Series, Span

INK, GRID, FAULT = "#4a4f55", "#e6e8eb", "#f0a030"
OTHER_COLOURS = ("#7f8a99", "#c08a00", "#4c7d9c", "#b8405e")  # of series that no rule of the panel names
CONFIG = {
    "background": "transparent",
    "font": "DejaVu Sans, sans-serif",
    "view": {"stroke": None},
    "axis": {"labelColor": INK, "gridColor": GRID, "domain": False, "ticks": False, "labelFontSize": 11, "title": None},
    "legend": {"labelFontSize": 11, "labelColor": INK, "symbolStrokeWidth": 2, "offset": 4, "labelLimit": 300},
}


def unit_of(unit: str, largest: float) -> tuple[float, str]:
    """The factor and the suffix that a panel's unit has on an axis up to `largest`."""
    steps = {
        "s": [(1.0, 1.0, " s"), (0.0, 1e3, " ms")],
        "percentunit": [(0.0, 100.0, " %")],
        "bytes": [(2.0**30, 2.0**-30, " GiB"), (0.0, 2.0**-20, " MiB")],
        "Bps": [(1e9, 1e-9, " GB/s"), (0.0, 1e-6, " MB/s")],
        "hertz": [(0.0, 1e-9, " GHz")],
        "reqps": [(0.0, 1.0, " req/s")],
        "watt": [(0.0, 1.0, " W")],
        "celsius": [(0.0, 1.0, " °C")],
        "short": [(0.0, 1.0, "")],
    }.get(unit, [(0.0, 1.0, unit.replace("suffix:", ""))])
    return next((factor, suffix) for least, factor, suffix in steps if largest >= least)


def written(value: float, unit: str) -> str:
    """To three significant digits."""
    factor, suffix = unit_of(unit, value)
    scaled = value * factor
    return (f"{scaled:,.0f}" if scaled >= 100 else f"{scaled:.3g}") + suffix


def colour_of(panel: Json, name: str) -> str | None:
    """The last rule that matches wins, as in Grafana."""
    found = _override(panel, name, "color")
    return None if found is None else str(found["fixedColor"])


def dash_of(panel: Json, name: str) -> list[int]:
    found = _override(panel, name, "custom.lineStyle")
    return [1, 0] if found is None else list(found["dash"])


def _override(panel: Json, name: str, what: str) -> Json | None:
    found = None
    for rule in panel["fieldConfig"].get("overrides", ()):
        kind, options = rule["matcher"]["id"], rule["matcher"]["options"]
        matches = options == name if kind == "byName" else _matches(options, name)
        for one in rule["properties"]:
            if matches and one["id"] == what:
                found = one["value"]
    return found


def _matches(pattern: str, name: str) -> bool:
    body, _, flags = pattern.removeprefix("/").rpartition("/")
    return re.search(body, name, re.IGNORECASE if "i" in flags else 0) is not None


def lines(panel: Json, series: Sequence[Series], span: Span, marks: Sequence[Mark], size: tuple[int, int]) -> str:
    """Lines over time, stacked where the panel says so. `size` in pixels."""
    custom, defaults = panel["fieldConfig"]["defaults"]["custom"], panel["fieldConfig"]["defaults"]
    stacked = custom.get("stacking", {}).get("mode", "none") != "none"
    top = defaults.get("max") or 1.05 * max(_tops(series, stacked)) or 1.0
    limits = [step for step in defaults["thresholds"]["steps"][1:] if custom.get("thresholdsStyle")]
    limits = [step for step in limits if step["value"] <= 2 * top]
    top = max(top, *(1.05 * step["value"] for step in limits), 0.0) if "max" not in defaults else top
    factor, suffix = unit_of(defaults["unit"], top)
    others = cycle(OTHER_COLOURS)
    names = list(dict.fromkeys(one.name for one in series))
    scale = {"domain": names, "range": [colour_of(panel, name) or next(others) for name in names]}
    dashes = {"domain": names, "range": [dash_of(panel, name) for name in names]}
    legend = {"orient": "bottom", "direction": "horizontal", "title": None, "columns": _columns(names, size[0])}
    legend |= {"symbolType": "square", "symbolSize": 120} if stacked else {"symbolType": "stroke", "symbolSize": 500}
    rows = [
        {"at": at, "value": value * factor if value is not None else 0 if stacked else None, "name": one.name}
        for one in series
        for at, value in enumerate(one.values)
    ]
    y = {"field": "value", "type": "quantitative", "stack": "zero" if stacked else None}
    encoding = {
        "x": _seconds(span),
        "y": y | {"scale": {"domain": [0, top * factor], "nice": "max" not in defaults}, "axis": _values(suffix)},
        "color": {"field": "name", "type": "nominal", "scale": scale, "legend": legend, "sort": names},
    }
    if not stacked:
        encoding["strokeDash"] = {"field": "name", "type": "nominal", "scale": dashes, "legend": legend, "sort": names}
    mark = (
        {"type": "area", "opacity": 0.65}
        if stacked
        else {"type": "line", "strokeWidth": 2, "strokeCap": "round", "clip": True}
    )
    layers = [*_background(span, marks), *(_limit(step, factor) for step in limits)]
    layers.append({"data": {"values": rows}, "mark": mark, "encoding": encoding})
    return _svg(layers, size)


def heatmap(panel: Json, series: Sequence[Series], span: Span, marks: Sequence[Mark], size: tuple[int, int]) -> str:
    """Requests in each bucket of a histogram, from its cumulative counts."""
    buckets = sorted((float(one.labels["le"]), one.values) for one in series)
    rows, below = [], [0.0] * (span.seconds + 1)
    for edge, counts in buckets:
        for at in range(0, span.seconds, 2):
            inside = (counts[at] or 0.0) - below[at]
            if inside > 1e-9:
                rows.append({"at": at, "next": at + 2, "le": written(edge, "s"), "count": inside})
        below = [count or 0.0 for count in counts]
    used = {row["le"] for row in rows}
    order = [text for edge, _ in reversed(buckets) if (text := written(edge, "s")) in used]
    axis = {"grid": False, "labelOverlap": True, "title": None}
    encoding = {
        "x": _seconds(span),
        "x2": {"field": "next"},
        "y": {"field": "le", "type": "ordinal", "sort": order, "axis": axis},
        "color": {
            "field": "count",
            "type": "quantitative",
            "scale": {"scheme": "blues", "type": "sqrt"},
            "legend": None,
        },
    }
    layers = [*_background(span, marks), {"data": {"values": rows}, "mark": "rect", "encoding": encoding}]
    return _svg(layers, size)


def _svg(layers: list[dict[str, Any]], size: tuple[int, int]) -> str:
    fit = {"type": "fit", "contains": "padding"}
    spec = {
        "width": size[0],
        "height": size[1],
        "autosize": fit,
        "padding": {"left": 8, "right": 8},
        "config": CONFIG,
        "layer": layers,
    }
    return str(vl_convert.vegalite_to_svg(spec))


def _tops(series: Sequence[Series], stacked: bool) -> list[float]:
    if not stacked:
        return [value for one in series for value in one.values if value is not None]
    return [sum(value or 0.0 for value in moment) for moment in zip(*(one.values for one in series), strict=True)]


def _columns(names: Sequence[str], width: int) -> int:
    return max(1, int(width // max(len(name) * 6.2 + 30 for name in names)))


def _seconds(span: Span) -> dict[str, Any]:
    text = "floor(datum.value / 60) + ':' + format(datum.value % 60, '02')"
    axis = {"values": list(range(0, span.seconds + 1, 20)), "labelExpr": text, "title": None, "grid": True}
    return {"field": "at", "type": "quantitative", "scale": {"domain": [0, span.seconds], "nice": False}, "axis": axis}


def _values(suffix: str) -> dict[str, Any]:
    return {"labelExpr": f"format(datum.value, ',.4~r') + {json.dumps(suffix)}", "tickCount": 4, "title": None}


def _background(span: Span, marks: Sequence[Mark]) -> list[dict[str, Any]]:
    """The time of the fault, and annotations."""
    x = _seconds(span)
    fault = {"at": span.fault - span.start, "next": span.seconds}
    layers: list[dict[str, Any]] = [
        {
            "data": {"values": [fault]},
            "mark": {"type": "rect", "color": FAULT, "opacity": 0.12},
            "encoding": {"x": x, "x2": {"field": "next"}},
        }
    ]
    for mark in marks:
        rule = {"type": "rule", "color": mark.colour, "strokeDash": [4, 3]}
        layers.append({"data": {"values": [{"at": mark.at}]}, "mark": rule, "encoding": {"x": x}})
    return layers


def _limit(step: Json, factor: float) -> dict[str, Any]:
    rule = {"type": "rule", "color": step["color"], "strokeDash": [8, 6]}
    y = {"field": "value", "type": "quantitative"}
    return {"data": {"values": [{"value": step["value"] * factor}]}, "mark": rule, "encoding": {"y": y}}
