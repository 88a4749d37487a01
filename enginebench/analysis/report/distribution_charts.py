"""How a latency is distributed: the share of requests that had it behind them by a time, on a logarithmic axis."""

from __future__ import annotations

from collections.abc import Sequence

from enginebench.analysis.report import charts
from enginebench.analysis.report.charts import Chart, Row, Spec, Styles, data, nominal, number, quantitative, rounded
from enginebench.analysis.report.figure import Figure, FigureSource, figure
from enginebench.analysis.summary.distributions import CURVE
from enginebench.records.formatting import column_unit, format_seconds
from enginebench.records.metrics import Metric

PANELS = 4  # from the first stage to the last
TABLE = {0.5: "p50", 0.9: "p90", 0.95: "p95", 0.99: "p99", 0.999: "p99.9", 1.0: "largest"}


def distribution_figure(source: FigureSource, metric: Metric) -> Figure | None:
    """A line for each run of an engine, at some of the stages; the table has all of them."""
    curves = [
        (engine.label, place.label, run, view.curves[metric.name])
        for engine, place in source.measured
        for run, view in enumerate(engine.at(place.label))
        if metric.name in view.curves
    ]
    if not curves:
        return None
    unit = column_unit(metric.unit, [curve[-1] for _, _, _, curve in curves])
    chosen = shown_stages([label for label in source.axis.labels if label in {stage for _, stage, _, _ in curves}])
    shares = rounded(100 * q for q in (0.0, *CURVE))
    rows: list[Row] = []
    for label, stage, run, curve in sorted(curves, key=lambda curve: source.axis.labels.index(curve[1])):
        if stage in chosen:
            times = rounded(time * unit.scale for time in (curve[0], *curve))
            rows.append({"engine": label, "stage": stage, "run": run, "time": times, "share": shares})
    table = [
        {"engine": label, "stage": stage} | {p: format_seconds(curve[CURVE.index(q)]) for q, p in TABLE.items()}
        for label, stage, _, curve in curves
    ]
    several = any(len(engine.runs) > 1 for engine in source.engines)
    note = f"{'A line for each run; answered' if several else 'Answered'} requests only; logarithmic scale."
    title = f"Share of requests whose {metric.title} was at most so long"
    chart, fields = distributions(rows, source.styles, unit.name), {name: name for name in table[0]}
    return figure(f"{metric.name}-curves", title, note, chart, fields, table, source.names)


def shown_stages(labels: Sequence[str]) -> list[str]:
    """Some of many: the first, the last, and what lies between at equal distances."""
    count = min(len(labels), PANELS)
    return [labels[round(k * (len(labels) - 1) / max(count - 1, 1))] for k in range(count)]


def distributions(rows: Sequence[Row], styles: Styles, unit: str) -> Chart:
    """A panel for each stage. Rows have lists of `time` and of the `share` of requests, in %, that had it behind them
    by then."""
    stages = list(dict.fromkeys(row["stage"] for row in rows))
    parts = 2 if len(stages) > 1 else 1
    size = {"width": charts.WIDTH / parts - 20 * (parts - 1), "height": charts.HEIGHT / parts}
    scale = charts.value_scale((time for row in rows for time in row["time"]), logarithmic=True)
    names = [f"stage_{index}" for index in range(len(stages))]
    drawings = [
        _panel([row for row in rows if row["stage"] == stage], styles, unit, name, scale) | size | {"title": stage}
        for stage, name in zip(stages, names, strict=True)
    ]
    return charts.chart_of({"concat": drawings, "columns": 2, "spacing": 18, "params": [charts.zoom("x", *names)]})


def _panel(rows: Sequence[Row], styles: Styles, unit: str, name: str, scale: Spec) -> Spec:
    encoding = {
        "x": quantitative("time", scale=scale, axis=charts.value_axis(unit, 4)),
        "y": quantitative("share", title=None, scale={"domain": [0, 100]}, axis=SHARES),
        "color": charts.by_colour(styles),
        "detail": nominal("run"),
    }
    told = [nominal("engine"), number("share", "share of requests, %"), number("time", f"no longer than, {unit}")]
    flat = {"transform": [charts.SHOWN, {"flatten": ["time", "share"]}]}
    step = {"mark": charts.LINE | {"interpolate": "step-after", "strokeWidth": 1.5}, "encoding": encoding, "name": name}
    return {**data(rows), **flat, "layer": [step, charts.nearest(f"near_{name}", encoding, told)]}


SHARES = {"values": [0, 50, 95], "labelExpr": "datum.value + ' %'"}
