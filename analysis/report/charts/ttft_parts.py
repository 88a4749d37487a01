"""Where TTFT goes: a bar for each engine at every stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from analysis.report.axis import Axis
from analysis.report.charts.drawing import INK, MUTED, PAGE, Drawn, chart_of, colours, svg_of
from analysis.report.charts.scales import WIDTH
from analysis.units import format_seconds
from analysis.verdict.knee import mean_parts

PART_OPACITIES = (0.16, 0.4, 0.68, 1.0)  # client, queue, prefill, delivery, in the engine's own colour


def ttft_parts(engines: Sequence[Drawn], axis: Axis) -> str | None:
    """What share of its mean TTFT each engine spent where, at every stage. `None` where no server reported it."""
    lines: list[dict[str, Any]] = []  # a heading for each stage, and under it a bar for each engine
    bars: list[dict[str, Any]] = []
    for place in axis.places:
        told = [(one, parts) for one in engines if (parts := mean_parts(one.contender, place.label)) is not None]
        if told:
            lines.append({"row": len(lines), "text": place.label, "heading": True, "total": ""})
        for one, parts in told:
            start = 0.0
            for opacity, length in zip(PART_OPACITIES, parts.lengths.values(), strict=True):
                end = start + length / (parts.total or 1.0)
                bars.append({"row": len(lines), "name": one.name, "opacity": opacity, "a": 100 * start, "b": 100 * end})
                start = end
            text = format_seconds(parts.total)
            lines.append({"row": len(lines), "text": one.name, "heading": False, "total": text})
    if not bars:
        return None
    y = alt.Y("row:O", title=None, axis=None, scale=alt.Scale(domain=[line["row"] for line in lines]))
    share = alt.Axis(values=[0, 25, 50, 75, 100], labelExpr="datum.value + ' %'", domain=False, ticks=False, grid=False)
    bar = (
        chart_of(bars)
        .mark_bar(height=13, stroke=PAGE, strokeWidth=0.75)
        .encode(
            y=y,
            x=alt.X("a:Q", title=None, scale=alt.Scale(domain=[0, 100]), axis=share),
            x2="b:Q",
            color=alt.Color("name:N", scale=colours(engines), legend=None),
            opacity=alt.Opacity("opacity:Q", scale=None, legend=None),
        )
    )
    rows = chart_of(lines).encode(y=y)
    names = rows.mark_text(align="right", dx=-8, fontSize=12, limit=130).encode(
        x=alt.datum(0),
        text="text:N",
        color=alt.condition("datum.heading", alt.value(INK), alt.value(MUTED)),
    )
    sums = rows.mark_text(align="left", dx=6, fontSize=12, color=INK).encode(x=alt.datum(100), text="total:N")
    return svg_of(alt.layer(bar, names, sums).properties(width=WIDTH - 60, height=20 * len(lines)))
