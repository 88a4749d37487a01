"""Throughput against requests in flight, with the Universal Scalability Law through what was measured."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.report.decision import Law
from analysis.report.drawing import (
    SHOWN,
    Chart,
    Drawn,
    Spec,
    colours,
    drawn,
    nominal,
    quantitative,
    rounded,
    rows_of,
    shapes,
    value_axis,
    zoom,
)
from analysis.report.scales import HEIGHT, WIDTH, Scale


def scalability_curves(engines: Sequence[Drawn], laws: Sequence[Law]) -> Chart:
    """A curve in its band for each law, within the measured loads, and a mark for each stage of each run."""
    names = {law.engine for law in laws}
    points: list[Spec] = [
        {
            "name": one.name,
            "place": stage.label,
            "n": stage.concurrency.average,
            "value": stage.throughput.value,
            "low": stage.throughput.low,
            "high": stage.throughput.high,
        }
        for one in engines
        for run in one.contender.runs
        for stage in run.stages
        if one.name in names and stage.throughput.value
    ]
    curves: list[Spec] = [_curve(law) for law in laws]
    tops = [point["high"] or point["value"] for point in points]
    high = max(*tops, *(min(max(one["high"]), ROOM * max(tops)) for one in curves))
    most, scale = max(point["n"] for point in points), Scale(0.0, high * 1.08, False)
    x = quantitative(
        "n",
        title="requests in flight",
        scale={"domain": [0, most * 1.06], "nice": False},
        axis={"grid": False, "tickCount": 6},
    )
    y = quantitative("value", scale=scale.spec, axis=value_axis())
    colour = colours(engines)
    at: Spec = {"x": x, "y": y, "color": colour}
    tooltip = [
        nominal("name", title="engine"),
        nominal("place", title="at"),
        quantitative("n", title="requests in flight", format=",.3~r"),
        *(quantitative(end, title=title, format=",.4~r") for end, title in ENDS.items()),
    ]
    flat: Spec = {"data": rows_of(curves), "transform": [SHOWN, {"flatten": ["n", "value", "low", "high"]}]}
    band = {"type": "area", "opacity": 0.16, "clip": True}
    line = {"type": "line", "strokeWidth": 2, "clip": True}
    spread = at | {"y": y | {"field": "low"}} | Y2
    layers = [
        flat | {"layer": [{"mark": band, "encoding": spread}, {"mark": line, "encoding": at, "params": [zoom("xy")]}]},
        _marks(points, {"type": "rule", "strokeWidth": 1.5, "clip": True}, spread),
        _marks(points, MARK, at | {"shape": shapes(engines), "tooltip": tooltip}),
    ]
    return drawn({"layer": layers, "width": WIDTH, "height": HEIGHT})


ENDS = {"value": "tokens/s", "low": "from", "high": "to"}
ROOM = 1.5  # times the highest mark: the most that a wide band may stretch the axis
Y2: Spec = {"y2": {"field": "high"}}
MARK: Spec = {"type": "point", "size": 55, "strokeWidth": 1.75, "opacity": 1, "filled": True, "clip": True}


def _curve(law: Law) -> Spec:
    points = law.fit.curve
    ends = {end: rounded(getattr(one.throughput, end) for one in points) for end in ENDS}
    return {"name": law.engine, "n": rounded(one.in_flight for one in points), **ends}


def _marks(points: Sequence[Spec], mark: Spec, encoding: Spec) -> Spec:
    return {"data": rows_of(points), "transform": [SHOWN], "mark": mark, "encoding": encoding}
