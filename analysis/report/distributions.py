"""How a latency is distributed: the share of requests that had it behind them by a time, on a logarithmic axis."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.report.axis import Axis
from analysis.report.drawing import (
    INK,
    SHOWN,
    Chart,
    Drawn,
    Spec,
    colours,
    drawn,
    heading,
    nominal,
    quantitative,
    reading,
    rounded,
    rows_of,
    value_axis,
    zoom,
)
from analysis.report.scales import HEIGHT, WIDTH, Scale, logarithmic
from analysis.summary.distributions import CURVE
from records.formatting import Unit, time_unit

PANELS = 4  # from the first stage to the last


def distribution_curves(engines: Sequence[Drawn], axis: Axis, metric: str) -> Chart | None:
    """A panel per stage and a line per run; `None` where the metric was not observed."""
    stages = {label: [(one, s) for one in engines for s in one.contender.at(label)] for label in axis.labels}
    curves = {label: [(one, s.curves[metric]) for one, s in at if metric in s.curves] for label, at in stages.items()}
    places = [label for label, found in curves.items() if found]
    if not places:
        return None
    count = min(len(places), PANELS)
    chosen = [places[round(k * (len(places) - 1) / max(count - 1, 1))] for k in range(count)]
    values = [value for label in chosen for _, curve in curves[label] for value in curve]
    unit = time_unit(values)
    scale = logarithmic([value * unit.scale for value in values])
    names = [f"curves_{place}" for place in range(count)]
    drawings = [_panel(engines, curves[label], names[k], label, unit, scale, count) for k, label in enumerate(chosen)]
    together: Spec = {"concat": drawings, "columns": 2 if count > 1 else 1, "spacing": 18}
    return drawn({**together, "params": [zoom("x", *names)]})


def _panel(
    engines: Sequence[Drawn],
    curves: Sequence[tuple[Drawn, Sequence[float]]],
    name: str,
    label: str,
    unit: Unit,
    scale: Scale,
    count: int,
) -> Spec:
    rows = [
        {
            "name": one.name,
            "run": run,
            "time": rounded(value * unit.scale for value in (curve[0], *curve)),
            "share": rounded(100 * q for q in (0.0, *CURVE)),
        }
        for run, (one, curve) in enumerate(curves)
    ]
    ticks = value_axis(unit.name, 4 if count > 1 else 6)
    shares = {"values": [0, 50, 95], "labelExpr": "datum.value + ' %'", "domain": False, "ticks": False}
    encoding = {
        "x": quantitative("time", scale=scale.spec, title=unit.name, axis=ticks),
        "y": quantitative("share", title=None, scale={"domain": [0, 100]}, axis=shares),
        "color": colours(engines),
        "detail": nominal("run"),
    }
    tooltip = [
        nominal("name", title="engine"),
        quantitative("share", title="share of requests, %", format=",.4~r"),
        quantitative("time", title=f"no longer than, {unit.name}", format=",.4~r"),
    ]
    width = 2 if len(curves) <= len(engines) else 1.2
    curve = {"type": "line", "interpolate": "step-after", "strokeWidth": width, "clip": True}
    return {
        "data": rows_of(rows),
        "transform": [SHOWN, {"flatten": ["time", "share"]}],
        "layer": [{"name": name, "mark": curve, "encoding": encoding}, reading(f"near_{name}", encoding, tooltip)],
        "width": WIDTH if count == 1 else WIDTH / 2 - 20,
        "height": HEIGHT if count == 1 else 120,
        "title": heading(label, INK),
    }
