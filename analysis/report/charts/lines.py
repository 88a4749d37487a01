"""Charts over the stages: a line for each engine.

Lines carry their engine's name at their end; a band or a bar is a 95 % interval, and a hollow mark has none. A cross at
the top is a percentile that falls among failed requests.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from analysis.report.axis import Axis
from analysis.report.charts.drawing import (
    PAGE,
    Drawn,
    chart_of,
    colours,
    shapes,
    svg_of,
    value_axis,
)
from analysis.report.charts.scales import HEIGHT, WIDTH, Scale, scale_of, spread_apart
from analysis.units import PLAIN, Unit, time_unit
from analysis.verdict.stages import StageSummary
from analysis.verdict.statistics import Estimate

LABEL_HEIGHT = 15  # pixels from one line's name to the next
Point = tuple[Drawn, float, Estimate]
"""An engine, a place on the axis, and the value there."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """An SVG, the unit of its values, and whether their axis is logarithmic."""

    svg: str
    unit: Unit
    logarithmic: bool


def by_stage(
    engines: Sequence[Drawn], axis: Axis, of: Callable[[StageSummary], Estimate], duration: bool
) -> Drawing | None:
    """A line per engine over the stages, with intervals. `None` where it was not measured."""
    points = [
        (one, place.at, one.contender.estimate(of, place.label))
        for one in engines
        for place in axis.places
        if one.contender.at(place.label)
    ]
    return lines(engines, axis, points, duration)


def lines(engines: Sequence[Drawn], axis: Axis, points: Sequence[Point], duration: bool) -> Drawing | None:
    """A line per engine through its points, which are in the order of the axis."""
    points = [point for point in points if point[2].value is not None]
    finite = [estimate for _, _, estimate in points if estimate.value is not None and math.isfinite(estimate.value)]
    if not finite:
        return None
    unit = time_unit(estimate.value for estimate in finite) if duration else PLAIN
    ends = [end for one in finite for end in (one.value, one.low, one.high) if end is not None and math.isfinite(end)]
    scale = scale_of([end * unit.scale for end in ends])
    rows = [_point(one.name, at, estimate, unit, scale) for one, at, estimate in points]
    x, y = _stages(axis), alt.Y("value:Q", scale=scale.altair, axis=value_axis(scale, unit))
    colour = alt.Color("name:N", scale=colours(engines), legend=None)
    base = chart_of(rows).encode(x=x, color=colour)
    served = base.transform_filter("!datum.failed")
    spread = base.transform_filter("isValid(datum.low)").encode(y=alt.Y("low:Q", scale=scale.altair), y2="high:Q")
    marks = served.encode(
        y=y,
        shape=alt.Shape("name:N", scale=shapes(engines), legend=None),
        fill=alt.condition("isValid(datum.low)", colour, alt.value(PAGE)),
    )
    layers = [
        spread.mark_area(opacity=0.16, interpolate="linear"),
        spread.mark_rule(strokeWidth=1.5, opacity=0.7),
        base.mark_line(strokeWidth=2, strokeDash=[3, 3], opacity=0.6).encode(y=y),
        served.mark_line(strokeWidth=2).encode(y=y),
        marks.mark_point(size=55, strokeWidth=1.75, opacity=1),
        base.transform_filter("datum.failed").mark_text(text="✕", fontSize=15, fontWeight=700).encode(y=y),
        _line_names(rows, scale, x).encode(color=colour),
    ]
    return Drawing(svg_of(alt.layer(*layers).properties(width=WIDTH, height=HEIGHT)), unit, scale.logarithmic)


def _stages(axis: Axis) -> alt.X:
    """Loads where they are; named stages at equal distances, with slanted labels where they need it."""
    values = [place.at for place in axis.places]
    margin = (values[-1] - values[0]) * 0.04 or 1
    return alt.X(
        "at:Q",
        title=axis.title if axis.quantitative else None,
        scale=alt.Scale(domain=[values[0] - margin, values[-1] + margin], nice=False, zero=False),
        axis=alt.Axis(values=values, grid=False, labelOverlap=axis.quantitative, **_texts(axis)),
    )


def _texts(axis: Axis) -> dict[str, Any]:
    if axis.quantitative:
        return {"format": ",.6~r"}
    texts = [place.text for place in axis.places]
    crowded = sum(len(text) for text in texts) * 7 > WIDTH
    return {
        "labelExpr": f"{json.dumps(texts)}[datum.value]",
        "labelAngle": -35 if crowded else 0,
        "labelLimit": 140,
    }


def _point(name: str, at: float, estimate: Estimate, unit: Unit, scale: Scale) -> dict[str, Any]:
    """What lies beyond the axis, because requests failed, is drawn at its end."""

    def scaled(value: float | None) -> float | None:
        return None if value is None else min(value * unit.scale, scale.high)

    failed = estimate.value is not None and math.isinf(estimate.value)
    low, high = (None, None) if failed else (scaled(estimate.low), scaled(estimate.high))
    return {"name": name, "at": at, "value": scaled(estimate.value), "low": low, "high": high, "failed": failed}


def _line_names(rows: Sequence[dict[str, Any]], scale: Scale, x: alt.X) -> Any:
    """Each engine's name beside its own last point, pushed apart where lines end at the same stage."""
    last = {row["name"]: row for row in rows}  # rows are in the order of stages
    labels = []
    for at in sorted({row["at"] for row in last.values()}):
        here = sorted(
            (scale.pixel(max(row["value"], scale.low)), name) for name, row in last.items() if row["at"] == at
        )
        places = spread_apart([pixel for pixel, _ in here], LABEL_HEIGHT, HEIGHT)
        labels += [
            {"name": name, "at": at, "y": scale.value(place)} for (_, name), place in zip(here, places, strict=True)
        ]
    return (
        chart_of(labels)
        .mark_text(align="left", dx=12, fontSize=12.5, fontWeight=600, limit=105)
        .encode(x=x, y=alt.Y("y:Q", scale=scale.altair), text="name:N")
    )
