"""Charts over the stages: a line for each engine.

A band or a bar is a 95 % interval, and a hollow mark has none. A cross at the top is a percentile that falls among
failed requests.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.report.axis import Axis
from analysis.report.drawing import (
    PAGE,
    SHOWN,
    Chart,
    Drawn,
    Spec,
    colours,
    drawn,
    quantitative,
    rows_of,
    shapes,
    tooltips,
    value_axis,
    zoom,
)
from analysis.report.ends import upper_end
from analysis.report.rows import Column
from analysis.report.scales import HEIGHT, WIDTH, Scale, scale_of
from records.formatting import MISSING, PLAIN, Unit, format_seconds, significant, time_unit
from records.view import Estimate

SLANTED = 20  # pixels from the slanted name of a stage to the next
Point = tuple[Drawn, float, Estimate]
"""An engine, a place on the axis, and the value there."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """A chart, the unit of its values, and whether their axis is logarithmic."""

    chart: Chart
    unit: Unit
    logarithmic: bool


def by_stage(engines: Sequence[Drawn], axis: Axis, column: Column) -> Drawing | None:
    """A line per engine over the stages, with intervals. `None` where it was not measured."""
    points = [
        (one, place.at, one.contender.estimate(column.of, place.label, column.most))
        for one in engines
        for place in axis.places
        if one.contender.at(place.label)
    ]
    return lines(engines, axis, points, column.duration)


def lines(engines: Sequence[Drawn], axis: Axis, points: Sequence[Point], duration: bool) -> Drawing | None:
    """A line per engine through its points, which are in the order of the axis."""
    points = [point for point in points if point[2].value is not None]
    finite = [estimate for _, _, estimate in points if estimate.value is not None and math.isfinite(estimate.value)]
    if not finite:
        return None
    unit = time_unit(estimate.value for estimate in finite) if duration else PLAIN
    ends = [end for one in finite for end in (one.value, one.low, one.high) if end is not None and math.isfinite(end)]
    scale = scale_of([end * unit.scale for end in ends])
    write = format_seconds if duration else significant
    rows = [_point(one.name, axis.text_at(at), at, estimate, unit, scale, write) for one, at, estimate in points]
    x, colour = _stages(axis), colours(engines)
    y = quantitative("value", scale=scale.spec, axis=value_axis())
    at, spread = {"x": x, "y": y, "color": colour}, {"x": x, "y": y | {"field": "low"}, "y2": {"field": "high"}}
    known, served, failed = ({"filter": test} for test in ("isValid(datum.low)", "!datum.failed", "datum.failed"))
    tooltip = tooltips(engine="name", at="place", value="text", interval="interval")
    marks = {
        "shape": shapes(engines),
        "fill": {"condition": {"test": "isValid(datum.low)", **colour}, "value": PAGE},
        "tooltip": tooltip,
    }
    cross = {"type": "text", "text": "✕", "fontSize": 15, "fontWeight": 700, "clip": False}
    layers = [
        _layer({"type": "area", "opacity": 0.16, "clip": True}, spread | {"color": colour}, known),
        _layer({"type": "rule", "strokeWidth": 1.5, "opacity": 0.7, "clip": True}, spread | {"color": colour}, known),
        _layer({"type": "line", "strokeWidth": 2, "strokeDash": [3, 3], "opacity": 0.6, "clip": True}, at),
        _layer({"type": "line", "strokeWidth": 2, "clip": True}, at, served) | {"params": [zoom("xy")]},
        _layer({"type": "point", "size": 55, "strokeWidth": 1.75, "opacity": 1, "clip": True}, at | marks, served),
        _layer(cross, at | {"tooltip": tooltip}, failed),
    ]
    spec = {"data": rows_of(rows), "layer": layers, "width": WIDTH, "height": HEIGHT}
    return Drawing(drawn(spec), unit, scale.logarithmic)


def _layer(mark: Spec, encoding: Spec, *filters: Spec) -> Spec:
    return {"mark": mark, "encoding": encoding, "transform": [SHOWN, *filters]}


def _stages(axis: Axis) -> Spec:
    """Loads where they are; named stages at equal distances, with slanted labels where they need it."""
    values = [place.at for place in axis.places]
    told = values if axis.quantitative else values[:: math.ceil(len(values) * SLANTED / WIDTH)]
    margin = (values[-1] - values[0]) * 0.04 or 1
    return quantitative(
        "at",
        title=axis.title if axis.quantitative else None,
        scale={"domain": [values[0] - margin, values[-1] + margin], "nice": False, "zero": False},
        axis={"values": told, "grid": False, "labelOverlap": axis.quantitative, **_texts(axis)},
    )


def _texts(axis: Axis) -> Spec:
    if axis.quantitative:
        return {"format": ",.6~r"}
    texts = [place.text for place in axis.places]
    crowded = sum(len(text) for text in texts) * 7 > WIDTH
    return {"labelExpr": f"{json.dumps(texts)}[datum.value]", "labelAngle": -35 if crowded else 0, "labelLimit": 140}


def _point(
    name: str, place: str, at: float, estimate: Estimate, unit: Unit, scale: Scale, write: Callable[[float], str]
) -> dict[str, Any]:
    """What lies beyond the axis, because requests failed, is drawn at its end."""

    def scaled(value: float | None) -> float | None:
        return None if value is None else min(value * unit.scale, scale.high)

    failed = estimate.value is not None and math.isinf(estimate.value)
    low, high = (None, None) if failed else (scaled(estimate.low), scaled(estimate.high))
    interval = f"{MISSING}, {estimate.why}" if estimate.why else MISSING
    if estimate.low is not None and estimate.high is not None:
        interval = f"{write(estimate.low)} to {upper_end(estimate, write)}"
    texts = {"place": place, "text": MISSING if estimate.value is None else write(estimate.value), "interval": interval}
    numbers = {"at": at, "value": scaled(estimate.value), "low": low, "high": high}
    return {"name": name, "failed": failed} | numbers | texts
