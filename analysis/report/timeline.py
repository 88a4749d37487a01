"""One run from its start to its end, with its stages and what was found in them."""

from __future__ import annotations

from typing import Any

from analysis.report.drawing import (
    BAD,
    MUTED,
    SHADE,
    WARN,
    Chart,
    Drawn,
    Spec,
    drawn,
    heading,
    nominal,
    quantitative,
    reading,
    rounded,
    rows_of,
    tooltips,
    value_axis,
    zoom,
)
from analysis.report.scales import WIDTH, Scale
from analysis.summary.run_summary import RunSummary
from records.view import in_order

COLOURS = {"invalid": BAD, "warn": WARN, "note": MUTED}
LINE = 90  # pixels of a panel's height
Rows = list[dict[str, Any]]


def timeline(one: Drawn) -> Chart:
    """Requests in flight and tokens per second over the first run. Steady windows are shaded, and marked where
    something was found in them."""
    run = one.contender.runs[0]
    lines = (("requests in flight", run.flow.in_flight), ("output tokens/s", run.flow.throughput))
    drawings = [_panel(one, title, values, index == 1) for index, (title, values) in enumerate(lines)]
    views = [f"flow_{int(last)}" for last in (False, True)]
    return drawn({"vconcat": drawings, "spacing": 14, "params": [zoom("x", *views)]})


def _panel(one: Drawn, title: str, values: tuple[float, ...], last: bool) -> Spec:
    run = one.contender.runs[0]
    step, end = run.flow.step, run.flow.step * len(values)
    scale = Scale(0.0, max(*values, 1.0) * 1.08, False)
    steps = rounded(step * index for index in range(len(values) + 1))
    x = quantitative(
        "t",
        title="seconds since the start" if last else None,
        scale={"domain": [0, end], "nice": False},
        axis={"grid": False, "labels": last, "ticks": last, "tickCount": 8},
    )
    encoding = {
        "x": x,
        "y": quantitative("value", scale=scale.spec, axis=value_axis()),
        "color": {"value": one.style.colour},
    }
    tooltip = [quantitative("t", title="seconds", format=",.4~r"), quantitative("value", title=title, format=",.3~r")]
    name = f"flow_{int(last)}"
    own = {
        "data": rows_of([{"t": steps, "value": rounded([*values, values[-1]])}]),
        "transform": [{"flatten": ["t", "value"]}],
    }
    curve = {"type": "line", "interpolate": "step-after", "strokeWidth": 1.5, "clip": True}
    layers = [
        _window({"type": "rect", "color": SHADE}, x=x | {"field": "a"}, x2={"field": "b"}),
        {"name": name, "mark": curve, "encoding": encoding, **own},
        reading(f"near_{name}", encoding, tooltip, **own),
    ]
    windows = rows_of(_windows(run))
    return {
        "data": windows,
        "layer": layers if last else [*layers, _marks(x)],
        "width": WIDTH + 60,
        "height": LINE,
        "title": heading(title, MUTED),
    }


def _window(mark: Spec, test: str = "true", **encoding: Spec | list[Spec]) -> Spec:
    tooltip = tooltips(stage="stage", window="window", found="found")
    mark = {"clip": True, **mark}
    return {"mark": mark, "transform": [{"filter": test}], "encoding": {**encoding, "tooltip": tooltip}}


def _marks(x: Spec) -> Spec:
    """A triangle for each window that has a finding."""
    mark = {"type": "point", "shape": "triangle-down", "filled": True, "size": 70, "xOffset": -8, "opacity": 1}
    colour = nominal("severity", scale={"domain": list(COLOURS), "range": list(COLOURS.values())}, legend=None)
    return _window(mark, "datum.found != 'nothing'", x=x | {"field": "b"}, y={"value": 9}, color=colour)


def _windows(run: RunSummary) -> Rows:
    """Each steady window with the findings of its stage, the gravest first."""
    rows = []
    for stage in run.stages:
        found = in_order(finding for finding in run.findings if finding.stage == stage.key)
        rows.append(
            {
                "a": stage.start,
                "b": stage.end,
                "stage": stage.label,
                "window": f"{stage.start:.1f} to {stage.end:.1f} s",
                "severity": found[0].severity if found else "note",
                "found": "; ".join(f"{one.severity}: {one.evidence}" for one in found) or "nothing",
            }
        )
    return rows
