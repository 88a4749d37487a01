"""One run from its start to its end: load, output and gauges, with its stages and what was found in them."""

from __future__ import annotations

from collections.abc import Sequence

from enginebench.analysis.compare.engine_runs import GPUS, EngineRuns
from enginebench.analysis.report import charts
from enginebench.analysis.report.charts import Chart, Row, Spec, data, nominal, number, quantitative, rounded
from enginebench.analysis.report.figure import Figure, FigureSource, figure
from enginebench.analysis.report.load_charts import gauge_title
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.formatting import column_unit, format_count
from enginebench.records.telemetry import GAUGES
from enginebench.records.view import SEVERITIES, in_order

COLOURS = dict(zip(SEVERITIES, (charts.BAD, charts.WARN, charts.MUTED), strict=True))
HIGH, LOW = 90, 54  # pixels of a panel: of what was measured, and of a gauge
MEASURED = 2  # panels that are high


def run_figure(source: FigureSource, engine: EngineRuns, index: int) -> Figure:
    """The first run of an engine, with every gauge that it has."""
    run, flow = engine.runs[0], engine.runs[0].flow
    series: list[Row] = [
        {"title": "requests in flight", "values": flow.in_flight},
        {"title": "output tokens/s", "values": flow.throughput},
    ]
    for name, values in flow.gauges.items():
        if name != GPUS:
            unit = column_unit(GAUGES[name].unit, values)
            scaled = [None if value is None else value * unit.scale for value in values]
            series.append({"title": gauge_title(name, unit), "values": scaled})
    rows = [
        {"seconds": flow.step * k} | {each["title"]: each["values"][k] for each in series}
        for k in range(len(flow.in_flight))
    ]
    which = f"The first of {len(engine.runs)} runs" if len(engine.runs) > 1 else "The whole run"
    every = "every second" if flow.step == 1 else f"every {flow.step:g} s"
    scope = f"{which}, {format_count(run.requests)} requests, {every}."
    note = f"{scope} Only the shaded steady windows count; a triangle marks a finding."
    chart, fields = timeline(series, run, source.styles[engine.label].colour), {name: name for name in rows[0]}
    return figure(f"flow-{index}", f"{engine.label} from start to end", note, chart, fields, rows)


def timeline(series: Sequence[Row], run: RunSummary, colour: str) -> Chart:
    """A panel for each series, which has a `title`, and `values` in the equal steps of the run's flow.

    Steady windows are shaded, and marked on the first panel where something was found in them.
    """
    names = [f"series_{index}" for index in range(len(series))]
    drawings = [
        _panel(each, name, run.flow.step, colour, name == names[-1])
        | {"width": charts.WIDTH + 60, "height": HIGH if index < MEASURED else LOW}
        for index, (each, name) in enumerate(zip(series, names, strict=True))
    ]
    drawings[0]["layer"].append(_marks(_seconds(run.flow.step * len(run.flow.in_flight))))
    whole = {"vconcat": drawings, "spacing": 12, "params": [charts.zoom("x", *names)]}
    return charts.chart_of({"datasets": {"windows": windows(run)}, **whole})


def _seconds(end: float, last: bool = False) -> Spec:
    axis = {"grid": False, "labels": last, "ticks": last, "tickCount": 8}
    title = "seconds since the start" if last else None
    return quantitative("t", title=title, scale={"domain": [0, end], "nice": False}, axis=axis)


def _panel(series: Row, name: str, step: float, colour: str, last: bool) -> Spec:
    values = series["values"]
    x, y = _seconds(step * len(values), last), quantitative("value", title=None, axis=charts.value_axis(ticks=3))
    encoding = {"x": x, "y": y, "color": {"value": colour}}
    told = [number("t", "seconds"), number("value", series["title"])]
    index, seconds = {"window": [{"op": "row_number", "as": "t"}]}, {"calculate": f"(datum.t - 1) * {step}", "as": "t"}
    curve = charts.LINE | {"interpolate": "step-after", "strokeWidth": 1.5}
    layers = [
        _window({"type": "rect", "color": charts.SHADE}, x=x | {"field": "start"}, x2={"field": "end"}),
        {"name": name, "mark": curve, "encoding": encoding},
        charts.nearest(f"near_{name}", encoding, told),
    ]
    rows = data([{"value": rounded([*values, values[-1]])}])
    title = {"text": series["title"], "color": charts.MUTED}
    return {**rows, "transform": [{"flatten": ["value"]}, index, seconds], "layer": layers, "title": title}


def _window(mark: Spec, test: str = "true", **encoding: Spec) -> Spec:
    shown = {"data": {"name": "windows"}, "transform": [{"filter": test}], "mark": {"clip": True, **mark}}
    return {**shown, "encoding": encoding | {"tooltip": [nominal(field) for field in ("stage", "window", "found")]}}


def _marks(x: Spec) -> Spec:
    """A triangle for each window that has a finding."""
    mark = {"type": "point", "shape": "triangle-down", "filled": True, "size": 70, "xOffset": -8, "opacity": 1}
    colour = nominal("severity", scale={"domain": list(COLOURS), "range": list(COLOURS.values())}, legend=None)
    return _window(mark, "datum.found != 'nothing'", x=x | {"field": "end"}, y={"value": 9}, color=colour)


def windows(run: RunSummary) -> list[Row]:
    """Each steady window with the findings of its stage, the gravest first."""
    rows = []
    for stage in run.stages:
        findings = in_order(finding for finding in run.findings if finding.stage == stage.key)
        rows.append(
            {
                "start": stage.start,
                "end": stage.end,
                "stage": stage.label,
                "window": f"{stage.start:.1f} to {stage.end:.1f} s",
                "severity": findings[0].severity if findings else "note",
                "found": "; ".join(f"{each.severity}: {each.evidence}" for each in findings) or "nothing",
            }
        )
    return rows
