"""Charts of TTFT: where it goes, and how it is distributed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from analysis.report.axis import Axis
from analysis.report.drawing import INK, MUTED, PAGE, Drawn, chart_of, colours, heading, svg_of, value_axis
from analysis.report.scales import HEIGHT, WIDTH, Scale, scale_of
from analysis.units import Unit, format_seconds, time_unit
from analysis.verdict.distributions import CURVE
from analysis.verdict.knee import mean_parts
from analysis.verdict.stages import StageSummary

PART_OPACITIES = (0.16, 0.4, 0.68, 1.0)  # client, queue, prefill, delivery, in the engine's own colour
PANELS = 4  # with distributions, from the first stage to the last


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
            for order, length in enumerate(parts.lengths.values()):
                end = start + length / (parts.total or 1.0)
                bars.append({"row": len(lines), "name": one.name, "order": order, "a": 100 * start, "b": 100 * end})
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
            opacity=alt.Opacity(
                "order:O", scale=alt.Scale(domain=[0, 1, 2, 3], range=list(PART_OPACITIES)), legend=None
            ),
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


def ttft_curves(engines: Sequence[Drawn], axis: Axis) -> str | None:
    """The share of first tokens that had come by a time, a panel per stage and a line per run."""
    places = [label for label in axis.labels if any(s.ttft_curve for one in engines for s in one.contender.at(label))]
    if not places:
        return None
    count = min(len(places), PANELS)
    chosen = [places[round(k * (len(places) - 1) / max(count - 1, 1))] for k in range(count)]
    shown = {
        label: [(one, stage) for one in engines for stage in one.contender.at(label) if stage.ttft_curve]
        for label in chosen
    }
    stages = [stage for drawn in shown.values() for _, stage in drawn]
    unit = time_unit(stage.ttft_curve[-1] for stage in stages)
    scale = scale_of([value * unit.scale for stage in stages for value in stage.ttft_curve])
    panels = [_curve_panel(engines, drawn, label, unit, scale, count) for label, drawn in shown.items()]
    return svg_of(alt.concat(*panels, columns=2 if count > 1 else 1, spacing=18))


def _curve_panel(
    engines: Sequence[Drawn],
    shown: Sequence[tuple[Drawn, StageSummary]],
    label: str,
    unit: Unit,
    scale: Scale,
    panels: int,
) -> Any:
    rows = [
        {"name": one.name, "run": run, "time": value * unit.scale, "share": 100 * q}
        for run, (one, stage) in enumerate(shown)
        for q, value in zip((0.0, *CURVE), (stage.ttft_curve[0], *stage.ttft_curve), strict=True)
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
