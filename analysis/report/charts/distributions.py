"""How a latency is distributed: the share of requests that had it behind them by a time, on a logarithmic axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from analysis.report.axis import Axis
from analysis.report.charts.drawing import INK, Drawn, chart_of, colours, heading, svg_of, value_axis
from analysis.report.charts.scales import HEIGHT, WIDTH, Scale, logarithmic
from analysis.units import Unit, time_unit
from analysis.verdict.distributions import CURVE

PANELS = 4  # from the first stage to the last


def distribution_curves(engines: Sequence[Drawn], axis: Axis, metric: str) -> str | None:
    """A panel per stage and a line per run; `None` where the metric was not observed."""
    stages = {label: [(one, s) for one in engines for s in one.contender.at(label)] for label in axis.labels}
    drawn = {label: [(one, s.curves[metric]) for one, s in at if metric in s.curves] for label, at in stages.items()}
    places = [label for label, curves in drawn.items() if curves]
    if not places:
        return None
    count = min(len(places), PANELS)
    chosen = [places[round(k * (len(places) - 1) / max(count - 1, 1))] for k in range(count)]
    values = [value for label in chosen for _, curve in drawn[label] for value in curve]
    unit = time_unit(values)
    scale = logarithmic([value * unit.scale for value in values])
    panels = [_panel(engines, drawn[label], label, unit, scale, count) for label in chosen]
    return svg_of(alt.concat(*panels, columns=2 if count > 1 else 1, spacing=18))


def _panel(
    engines: Sequence[Drawn],
    shown: Sequence[tuple[Drawn, Sequence[float]]],
    label: str,
    unit: Unit,
    scale: Scale,
    panels: int,
) -> Any:
    rows = [
        {"name": one.name, "run": run, "time": value * unit.scale, "share": 100 * q}
        for run, (one, curve) in enumerate(shown)
        for q, value in zip((0.0, *CURVE), (curve[0], *curve), strict=True)
    ]
    return (
        chart_of(rows)
        .mark_line(interpolate="step-after", strokeWidth=2 if len(shown) <= len(engines) else 1.2)
        .encode(
            x=alt.X(
                "time:Q",
                scale=scale.altair,
                title=unit.name,
                axis=value_axis(scale, unit, "bottom", 4 if panels > 1 else 6),
            ),
            y=alt.Y(
                "share:Q",
                title=None,
                scale=alt.Scale(domain=[0, 100]),
                axis=alt.Axis(values=[0, 50, 95], labelExpr="datum.value + ' %'", domain=False, ticks=False),
            ),
            color=alt.Color("name:N", scale=colours(engines), legend=None),
            detail="run:N",
        )
        .properties(
            width=WIDTH if panels == 1 else WIDTH / 2 - 20,
            height=HEIGHT if panels == 1 else 120,
            title=heading(label, INK),
        )
    )
