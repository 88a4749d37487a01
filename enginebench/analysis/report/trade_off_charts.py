"""What is gained where something else is lost: output against each user's speed and against requests in flight, and
where TTFT goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from enginebench.analysis.compare.engine_runs import GPUS
from enginebench.analysis.compare.limit import PARTS, mean_parts
from enginebench.analysis.plan.scalability import Scalability
from enginebench.analysis.report import charts
from enginebench.analysis.report.axis import Axis
from enginebench.analysis.report.charts import Chart, Row, Styles, data, layer, nominal, number, quantitative, rounded
from enginebench.analysis.report.figure import Figure, FigureSource, figure
from enginebench.records.formatting import MISSING, format_seconds, in_words
from enginebench.records.metrics import QUANTITY_BY_NAME
from enginebench.records.view import Estimate

STEPS = (
    "A step says what was measured: at least so much output at that speed or a higher one. Nothing is interpolated "
    "between two loads."
)
LAW = (
    "A mark for each stage; the curve is the Universal Scalability Law, λN / (1 + σ(N − 1) + κN(N − 1)), fitted to "
    "them and drawn no further than they reach, in its 95 % band."
)
ROOM = 1.5  # times the highest mark: the most that a wide band may stretch an axis
OPACITIES = (0.16, 0.4, 0.68, 1.0)  # of the parts of TTFT, in the engine's own colour
ENDS = ("value", "low", "high")


def pareto_figure(source: FigureSource) -> Figure | None:
    """Of two loads or more. Per GPU where the servers of all engines say how many they have, else per replica."""
    if not source.loads or len(source.axis.places) < 2:
        return None
    devices = [engine.gauge(place.label, GPUS) for engine, place in source.measured]
    per = "GPU" if all(devices) else "replica"
    answers = {(each.engine, load.label): load.answer for each in source.capacities for load in each.loads}
    rows: list[Row] = []
    for (engine, place), count in zip(source.measured, devices, strict=True):
        speed, output = (engine.value(place.label, name) for name in ("user_throughput", "throughput"))
        if speed and output:
            row = {"engine": engine.label, "stage": place.label, "load": place.text, "speed": speed}
            answer = answers.get((engine.label, place.label), MISSING)
            rows.append(row | {"output": output / (count or 1.0 if per == "GPU" else 1.0), "slo": answer})
    if not rows:
        return None
    for row in rows:
        row["frontier"] = not any(_dominates(other, row) for other in rows)
    fields = {"engine": "engine", "stage": "stage", f"tokens/s per {per}": "output", "tokens/s per user": "speed"}
    fields |= {"SLO": "slo"} if answers else {}
    title = f"Output tokens/s per {per} against tokens/s per user"
    return figure("pareto", title, STEPS, pareto(rows, source.styles, per), fields, rows, source.names)


def _dominates(other: Row, row: Row) -> bool:
    """Whether the same engine did better in one of the two at another load, and no worse in the other."""
    pairs = [(other[name], row[name]) for name in ("speed", "output")]
    return other["engine"] == row["engine"] and all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)


def pareto(rows: Sequence[Row], styles: Styles, per: str) -> Chart:
    """Rows have `speed`, `output`, `load` as a text, `slo`, and whether the point is on its engine's `frontier`."""
    scale = charts.value_scale([row["speed"] for row in rows], logarithmic=False)
    x = quantitative("speed", title="output tokens/s per user", scale=scale, axis={"grid": False, "tickCount": 6})
    y = quantitative("output", title=None, axis=charts.value_axis())
    at = {"x": x, "y": y, "color": charts.by_colour(styles)}
    told = [nominal("engine"), nominal("stage", title="at"), number("output", f"tokens/s per {per}")]
    told += [number("speed", "tokens/s per user"), nominal("slo", title="SLO")]
    name = {"type": "text", "align": "left", "baseline": "bottom", "dx": 5, "dy": -4, "clip": True}
    step = charts.LINE | {"interpolate": "step-before"}
    layers = [
        layer(step, at, {"filter": "datum.frontier"}, params=[charts.zoom("xy")]),
        layer(charts.POINT | {"filled": True}, at | {"shape": charts.by_shape(styles), "tooltip": told}),
        layer(name, at | {"text": nominal("load")}, {"filter": "datum.frontier"}),
    ]
    return charts.chart_of({**data(rows), "layer": layers, "width": charts.WIDTH, "height": charts.HEIGHT})


def scalability_figure(source: FigureSource, laws: Mapping[str, Scalability]) -> Figure | None:
    rows: list[Row] = []
    for label, stage in ((engine.label, stage) for engine in source.engines for stage in engine.stages):
        output, in_flight = stage.estimate("throughput"), stage.value("concurrency")
        if label in laws and output.value and in_flight:
            ends = {end: getattr(output, end) for end in ENDS}
            rows.append({"engine": label, "stage": stage.label, "in_flight": in_flight, **ends})
    if not rows:
        return None
    table = [row for label, law in laws.items() for row in _law_rows(label, law, rows)]
    chart = scalability(rows, [_curve(label, law) for label, law in laws.items()], source.styles)
    fields = {"engine": "engine", "parameter": "parameter", "value": "value", "from": "low", "to": "high"}
    title = "Output tokens/s against requests in flight, with a fitted law"
    return figure("scalability", title, LAW, chart, fields, table, laws)


def _law_rows(label: str, law: Scalability, rows: Sequence[Row]) -> list[Row]:
    measured = max(row["value"] for row in rows if row["engine"] == label)
    beyond = ", above all that was measured" if (law.most.value or 0.0) > measured else ""
    parameters = {
        "measured maximum, tokens/s": Estimate(measured),
        f"fitted maximum, tokens/s{beyond}": law.most,
        "requests in flight at the fitted maximum": law.peak,
        "λ, tokens/s of one": law.rate,
        "σ, contention": law.contention,
        "κ, coherency": law.coherency,
    }
    return [
        {"engine": label, "parameter": name} | {end: getattr(estimate, end) for end in ENDS}
        for name, estimate in parameters.items()
    ]


def _curve(label: str, law: Scalability) -> Row:
    ends = {end: rounded(getattr(point.throughput, end) for point in law.curve) for end in ENDS}
    return {"engine": label, "in_flight": rounded(point.in_flight for point in law.curve), **ends}


def scalability(rows: Sequence[Row], curves: Sequence[Row], styles: Styles) -> Chart:
    """Rows have `in_flight`, `value`, `low` and `high`; of the curves these are lists."""
    highest = max(row["high"] or row["value"] for row in rows)
    fitted = max(max(curve["high"]) for curve in curves)
    scale = charts.value_scale([highest, min(fitted, ROOM * highest)], logarithmic=False)
    most = charts.value_scale([row["in_flight"] for row in rows], logarithmic=False)
    x = quantitative("in_flight", title="requests in flight", scale=most, axis={"grid": False, "tickCount": 6})
    y = quantitative("value", scale=scale, title=None, axis=charts.value_axis())
    at = {"x": x, "y": y, "color": charts.by_colour(styles)}
    spread = at | {"y": y | {"field": "low"}, "y2": {"field": "high"}}
    told = [nominal("engine"), nominal("stage", title="at"), number("in_flight", "requests in flight")]
    told += [number("value", "tokens/s"), number("low", "from"), number("high", "to")]
    flat = {"flatten": ["in_flight", *ENDS]}
    layers = [
        layer(charts.BAND, spread, flat, **data(curves)),
        layer(charts.LINE, at, flat, **data(curves), params=[charts.zoom("xy")]),
        layer(charts.BAR, spread),
        layer(charts.POINT | {"filled": True}, at | {"shape": charts.by_shape(styles), "tooltip": told}),
    ]
    return charts.chart_of({**data(rows), "layer": layers, "width": charts.WIDTH, "height": charts.HEIGHT})


def parts_figure(source: FigureSource) -> Figure | None:
    """Where TTFT goes, of the engines whose servers say it."""
    titles = {name: QUANTITY_BY_NAME[name].title.removeprefix("TTFT: ") for name in PARTS}
    rows: list[Row] = []
    table: list[Row] = []
    for engine, place in source.measured:
        lengths = {titles[name]: length for name, length in mean_parts(engine.at(place.label)).items()}
        total = sum(lengths.values())
        if total:
            at = {"engine": engine.label, "stage": place.label}
            table.append(at | {part: format_seconds(length) for part, length in lengths.items()})
            for order, (part, length) in enumerate(lengths.items()):
                rows.append(
                    at | {"part": part, "order": order, "share": length / total, "mean": format_seconds(length)}
                )
    if not rows:
        return None
    parts = in_words([title if title == PARTS[name] else f"{title} ({PARTS[name]})" for name, title in titles.items()])
    note = f"Of the answered requests, from light to full colour: {parts}."
    chart, fields = ttft_parts(rows, source.styles, source.axis), {name: name for name in table[0]}
    return figure("parts", "Mean TTFT by its parts", note, chart, fields, table)


def ttft_parts(rows: Sequence[Row], styles: Styles, axis: Axis) -> Chart:
    """A bar for each engine at every stage. Rows have the `share` of each `part`, their `order`, and its `mean`."""
    told = [*(nominal(field) for field in ("engine", "stage", "part", "mean")), quantitative("share", format=".1%")]
    shares = {"format": "%", "tickCount": 4, "domain": False, "grid": False}
    encoding = {
        "y": nominal("engine", title=None, sort=list(styles), axis={"labelLimit": 150}),
        "x": quantitative("share", title=None, scale={"domain": [0, 1]}, axis=shares),
        "color": charts.by_colour(styles),
        "opacity": {
            "field": "order",
            "type": "ordinal",
            "scale": {"type": "ordinal", "range": OPACITIES},
            "legend": None,
        },
        "order": quantitative("order"),
        "tooltip": told,
    }
    bar = {"mark": {"type": "bar", "height": 13, "stroke": charts.PAGE, "strokeWidth": 0.75}, "encoding": encoding}
    size = {"width": charts.WIDTH - 60, "height": {"step": 20}}
    stage = {"row": nominal("stage", title=None, sort=list(axis.labels), header={"labelOrient": "top"})}
    whole = {"facet": stage, "spec": {**bar, **size, "transform": [charts.SHOWN]}, "spacing": 6}
    return charts.chart_of({**data(rows), **whole, "resolve": {"scale": {"y": "independent"}}})
