"""The charts of a report, as SVG texts that need no script and no network.

Altair describes them, vl-convert draws them. Each is half a page wide, so that it is legible on a telephone too. Lines
carry their engine's name at their end; a band or a bar is a 95 % interval, and a hollow mark has none.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import vl_convert

from analysis.report.palette import GRID, INK, MUTED, PAGE, SHADE, Style
from analysis.report.scales import HEIGHT, WIDTH, Scale, scale_of, spread_apart
from analysis.report.units import PLAIN, Unit, format_seconds, time_unit
from analysis.verdict.stages import CURVE, StageSummary
from analysis.verdict.statistics import Estimate
from analysis.verdict.summary import RunSummary

LABEL_HEIGHT = 15  # pixels from one line's name to the next
FONT = "Helvetica Neue, Helvetica, Arial, sans-serif"
PART_OPACITIES = (0.28, 0.62, 1.0)  # queue, prefill, delivery, in the engine's own colour
ECDF_STEPS = 4  # panels with distributions, from the smallest step to the largest


@dataclass(frozen=True, slots=True)
class Named:
    """A run as the charts know it."""

    name: str
    style: Style
    summary: RunSummary


@dataclass(frozen=True, slots=True)
class Drawing:
    """An SVG, the unit of its values, and whether their axis is logarithmic."""

    svg: str
    unit: Unit
    logarithmic: bool


def by_users(runs: Sequence[Named], of: Callable[[StageSummary], Estimate], duration: bool) -> Drawing | None:
    """A line per run over the steps, with intervals. `None` where nobody measured it."""
    points = [(run, stage.users, of(stage)) for run in runs for stage in run.summary.stages]
    points = [point for point in points if point[2].value is not None]
    if not points:
        return None
    unit = time_unit(estimate.value for _, _, estimate in points) if duration else PLAIN
    rows = [_point(run, users, estimate, unit) for run, users, estimate in points]
    scale = scale_of([value for row in rows for key in ("value", "low", "high") if (value := row[key]) is not None])
    users = sorted({row["users"] for row in rows})
    margin = (users[-1] - users[0]) * 0.04 or 1
    x = alt.X(
        "users:Q",
        title="users",
        scale=alt.Scale(domain=[users[0] - margin, users[-1] + margin], nice=False, zero=False),
        axis=alt.Axis(values=users, grid=False, format="d", labelOverlap=True),
    )
    y = alt.Y("value:Q", scale=scale.altair, axis=_value_axis(scale, unit))
    colour = alt.Color("name:N", scale=_colours(runs), legend=None)
    base = _chart(rows).encode(x=x, color=colour)
    spread = base.transform_filter("isValid(datum.low)").encode(y=alt.Y("low:Q", scale=scale.altair), y2="high:Q")
    marks = base.encode(
        y=y,
        shape=alt.Shape("name:N", scale=_shapes(runs), legend=None),
        fill=alt.condition("isValid(datum.low)", colour, alt.value(PAGE.light)),
    )
    layers = [
        spread.mark_area(opacity=0.16, interpolate="linear"),
        spread.mark_rule(strokeWidth=1.5, opacity=0.7),
        base.mark_line(strokeWidth=2).encode(y=y),
        marks.mark_point(size=55, strokeWidth=1.75, opacity=1),
        _line_names(rows, scale).encode(color=colour),
    ]
    return Drawing(_svg(alt.layer(*layers).properties(width=WIDTH, height=HEIGHT)), unit, scale.logarithmic)


def _point(run: Named, users: int, estimate: Estimate, unit: Unit) -> dict[str, Any]:
    def scaled(value: float | None) -> float | None:
        return None if value is None else value * unit.scale

    return {
        "name": run.name,
        "users": users,
        "value": scaled(estimate.value),
        "low": scaled(estimate.low),
        "high": scaled(estimate.high),
    }


def _line_names(rows: Sequence[dict[str, Any]], scale: Scale) -> Any:
    """Each run's name beside its own last point, pushed apart where lines end at the same step."""
    last = {row["name"]: row for row in rows}  # rows are in the order of steps
    labels = []
    for users in sorted({row["users"] for row in last.values()}):
        here = sorted(
            (scale.pixel(max(row["value"], scale.low)), name) for name, row in last.items() if row["users"] == users
        )
        places = spread_apart([pixel for pixel, _ in here], LABEL_HEIGHT, HEIGHT)
        labels += [
            {"name": name, "users": users, "at": scale.value(place)}
            for (_, name), place in zip(here, places, strict=True)
        ]
    return (
        _chart(labels)
        .mark_text(align="left", dx=12, fontSize=12.5, fontWeight=600, limit=105)
        .encode(x="users:Q", y=alt.Y("at:Q", scale=scale.altair), text="name:N")
    )


def ttft_parts(runs: Sequence[Named]) -> str | None:
    """What share of its mean TTFT each run spent where, at every step. `None` where no server told."""
    told = [(run, s, s.ttft_parts) for run in runs for s in run.summary.stages if s.ttft_parts is not None]
    if not told:
        return None
    names: list[str] = []
    rows: list[dict[str, Any]] = []
    totals: list[dict[str, Any]] = []
    for run, stage, parts in sorted(told, key=lambda one: one[1].users):
        heading, name = f"{stage.users}|{stage.users} users", f"{stage.users}|{run.name}"
        names += [name] if heading in names else [heading, name]
        lengths = [max(part, 0.0) for part in (parts.queue, parts.prefill, parts.delivery)]
        total, start = sum(lengths) or 1.0, 0.0
        totals.append({"row": name, "total": format_seconds(sum(lengths))})
        for order, length in enumerate(lengths):
            end = start + length / total
            rows.append({"row": name, "name": run.name, "order": order, "a": 100 * start, "b": 100 * end})
            start = end
    heading_test = (
        "indexof(datum.label, ' users') > 0 && split(datum.label, '|')[1] == split(datum.label, '|')[0] + ' users'"
    )
    y = alt.Y(
        "row:N",
        title=None,
        scale=alt.Scale(domain=names),
        axis=alt.Axis(
            domain=False,
            ticks=False,
            grid=False,
            labelLimit=190,
            labelPadding=8,
            labelExpr="split(datum.label, '|')[1]",
            labelFontWeight=alt.condition(heading_test, alt.value("bold"), alt.value("normal")),
            labelColor=alt.condition(heading_test, alt.value(INK.light), alt.value(MUTED.light)),
        ),
    )
    share = alt.Axis(values=[0, 25, 50, 75, 100], labelExpr="datum.value + ' %'", domain=False, ticks=False, grid=False)
    bars = (
        _chart(rows)
        .mark_bar(height=13, stroke=PAGE.light, strokeWidth=0.75)
        .encode(
            y=y,
            x=alt.X("a:Q", title=None, scale=alt.Scale(domain=[0, 100]), axis=share),
            x2="b:Q",
            color=alt.Color("name:N", scale=_colours(runs), legend=None),
            opacity=alt.Opacity("order:O", scale=alt.Scale(domain=[0, 1, 2], range=list(PART_OPACITIES)), legend=None),
        )
    )
    sums = (
        _chart(totals)
        .mark_text(align="left", dx=6, fontSize=12, color=INK.light)
        .encode(y=y, x=alt.datum(100), text="total:N")
    )
    return _svg(alt.layer(bars, sums).properties(width=WIDTH - 60, height=20 * len(names)))


def ttft_curves(runs: Sequence[Named]) -> str | None:
    """The share of first tokens that had come by a time, a panel per step."""
    steps = sorted({stage.users for run in runs for stage in run.summary.stages if stage.ttft_curve})
    if not steps:
        return None
    chosen = (
        [steps[round(k * (len(steps) - 1) / (ECDF_STEPS - 1))] for k in range(ECDF_STEPS)]
        if len(steps) > ECDF_STEPS
        else steps
    )
    shown = [(run, s) for run in runs for s in run.summary.stages if s.users in chosen and s.ttft_curve]
    unit = time_unit(stage.ttft_curve[-1] for _, stage in shown)
    values = [value * unit.scale for _, stage in shown for value in stage.ttft_curve]
    scale = scale_of(values)
    panels = [
        _curve_panel(
            runs, [(run, stage) for run, stage in shown if stage.users == users], users, unit, scale, len(chosen)
        )
        for users in chosen
    ]
    return _svg(alt.concat(*panels, columns=2 if len(chosen) > 1 else 1, spacing=18))


def _curve_panel(
    runs: Sequence[Named],
    shown: Sequence[tuple[Named, StageSummary]],
    users: int,
    unit: Unit,
    scale: Scale,
    panels: int,
) -> Any:
    rows = [
        {"name": run.name, "seconds": value * unit.scale, "share": 100 * q}
        for run, stage in shown
        for q, value in zip((0.0, *CURVE), (stage.ttft_curve[0], *stage.ttft_curve), strict=True)
    ]
    return (
        _chart(rows)
        .mark_line(interpolate="step-after", strokeWidth=2)
        .encode(
            x=alt.X(
                "seconds:Q",
                scale=scale.altair,
                title=unit.name,
                axis=_value_axis(scale, unit, "bottom", 4 if panels > 1 else 6),
            ),
            y=alt.Y(
                "share:Q",
                title=None,
                scale=alt.Scale(domain=[0, 100]),
                axis=alt.Axis(values=[0, 50, 95], labelExpr="datum.value + ' %'", domain=False, ticks=False),
            ),
            color=alt.Color("name:N", scale=_colours(runs), legend=None),
        )
        .properties(
            width=WIDTH if panels == 1 else WIDTH / 2 - 20,
            height=HEIGHT if panels == 1 else 120,
            title=_heading(f"{users} users", INK.light),
        )
    )


def timeline(run: Named) -> str:
    """Requests in flight and tokens per second over the whole run, with the steady windows shaded."""
    line, step = run.summary.timeline, run.summary.timeline.step
    windows = [{"a": stage.start, "b": stage.end} for stage in run.summary.stages]
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
        shade = _chart(windows).mark_rect(color=SHADE.light).encode(x=alt.X("a:Q"), x2="b:Q")
        curve = (
            _chart(rows)
            .mark_line(interpolate="step-after", strokeWidth=1.5, color=run.style.colour.light)
            .encode(x=x, y=alt.Y("value:Q", scale=scale.altair, axis=_value_axis(scale, PLAIN)))
        )
        heading = _heading(title, MUTED.light)
        panels.append(alt.layer(shade, curve).properties(width=WIDTH + 60, height=90, title=heading))
    return _svg(alt.vconcat(*panels, spacing=14))


def _heading(text: str, colour: str) -> alt.Title:
    return alt.Title(text, anchor="start", frame="group", fontSize=12.5, fontWeight=600, color=colour, offset=6)


def _chart(rows: Sequence[dict[str, Any]]) -> Any:
    return alt.Chart(alt.Data(values=list(rows)))  # type: ignore[no-untyped-call]  # generated classes


def _value_axis(scale: Scale, unit: Unit, side: str = "left", ticks: int = 6) -> alt.Axis:
    return alt.Axis(
        title=unit.name if side == "bottom" else None,
        values=scale.ticks(ticks),
        format=",~r",
        domain=False,
        ticks=False,
        labelPadding=6,
        gridColor=GRID.light,
        labelOverlap=True,
    )


def _colours(runs: Sequence[Named]) -> alt.Scale:
    return alt.Scale(domain=[run.name for run in runs], range=[run.style.colour.light for run in runs])


def _shapes(runs: Sequence[Named]) -> alt.Scale:
    return alt.Scale(domain=[run.name for run in runs], range=[run.style.shape for run in runs])


def _svg(chart: Any) -> str:
    """Inline SVG: no fixed size, so that the page may shrink it, and ids that no other chart on the page has."""
    configured = chart.configure(
        background="transparent",
        font=FONT,
        padding={"left": 4, "top": 6, "right": 8, "bottom": 4},
        autosize=alt.AutoSizeParams(type="pad"),
        aria=False,
        view=alt.ViewConfig(stroke=None),
        axis=alt.AxisConfig(
            labelFontSize=12,
            titleFontSize=12,
            labelColor=MUTED.light,
            titleColor=MUTED.light,
            titleFontWeight="normal",
            domainColor=MUTED.light,
            tickColor=MUTED.light,
            gridColor=GRID.light,
        ),
    )
    svg = vl_convert.vegalite_to_svg(configured.to_dict(validate=False))  # validating takes longer than drawing
    svg = re.sub(r'<svg[^>]*? width="([\d.]+)" height="([\d.]+)" (viewBox="[^"]*")[^>]*>', _opening, svg, count=1)
    prefix = f"c{hashlib.sha256(svg.encode()).hexdigest()[:8]}-"
    svg = re.sub(r'(id="|url\(#)', rf"\g<1>{prefix}", svg)
    return re.sub(r' (?:aria-[a-z]+|role|pointer-events|class)="[^"]*"', "", svg)


def _opening(match: re.Match[str]) -> str:
    return f'<svg xmlns="http://www.w3.org/2000/svg" {match[3]} style="max-width:{match[1]}px">'
