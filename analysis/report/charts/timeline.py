"""One run from its start to its end."""

from __future__ import annotations

from typing import Any

import altair as alt

from analysis.report.charts.drawing import MUTED, SHADE, Drawn, chart_of, heading, svg_of, value_axis
from analysis.report.charts.scales import WIDTH, Scale
from analysis.units import PLAIN


def timeline(one: Drawn) -> str:
    """Requests in flight and tokens per second over the first run, with the steady windows shaded."""
    run = one.contender.runs[0]
    line, step = run.flow, run.flow.step
    windows = [{"a": stage.start, "b": stage.end} for stage in run.stages]
    end = step * len(line.in_flight)
    panels: list[Any] = []
    for title, values in (("requests in flight", line.in_flight), ("output tokens/s", line.throughput)):
        scale = Scale(0.0, max(*values, 1.0) * 1.08, False)
        rows = [{"t": step * index, "value": value} for index, value in enumerate([*values, values[-1]])]
        x = alt.X(
            "t:Q",
            title="seconds since the start" if panels else None,
            scale=alt.Scale(domain=[0, end], nice=False),
            axis=alt.Axis(grid=False, labels=bool(panels), ticks=bool(panels), tickCount=8),
        )
        shade = chart_of(windows).mark_rect(color=SHADE).encode(x=alt.X("a:Q"), x2="b:Q")
        curve = (
            chart_of(rows)
            .mark_line(interpolate="step-after", strokeWidth=1.5, color=one.style.colour)
            .encode(x=x, y=alt.Y("value:Q", scale=scale.altair, axis=value_axis(scale, PLAIN)))
        )
        panels.append(alt.layer(shade, curve).properties(width=WIDTH + 60, height=90, title=heading(title, MUTED)))
    return svg_of(alt.vconcat(*panels, spacing=14))
