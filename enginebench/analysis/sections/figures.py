"""Figures of a frame: a metric by load, throughput against speed, distributions, and a run from start to end."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from enginebench.analysis.document import Axis, Figure, Point, Series, Span
from enginebench.analysis.frame import Frame, column_of
from enginebench.analysis.sections.candidates import latency_columns
from enginebench.analysis.summary.distributions import CURVE
from enginebench.analysis.verdict.slo_verdict import Status
from enginebench.records.metrics import (
    CONCURRENCY,
    QUANTITY_BY_NAME,
    REQUEST_METRICS,
    THROUGHPUT,
    USER_THROUGHPUT,
    Column,
    Metric,
    columns,
)
from enginebench.records.view import Estimate, StageView

LOGARITHMIC = 20  # an axis whose values span more than this factor is logarithmic
FLOW = (QUANTITY_BY_NAME[CONCURRENCY], QUANTITY_BY_NAME[THROUGHPUT])


def first_figure(frame: Frame) -> Figure | None:
    """Draw, for every candidate, the SLO's own latency by load; without an SLO, throughput against speed. If only one
    load was measured, draw the distribution of TTFT."""
    if len(frame.stages) < 2:
        return next(distributions(frame), None)
    trade = not (frame.objectives or frame.one_token or len(frame.engines) == 1)
    return (pareto(frame) if trade else None) or by_load(frame, frame.speed if frame.one_token else _limiting(frame))


def _limiting(frame: Frame) -> Column:
    """Return the latency that most engines miss at the lowest load that misses the SLO, else the first one."""
    ends = [capacity.at(capacity.beyond) for capacity in frame.capacities.values()]
    objectives = [own for verdict in ends if verdict is not None for own in verdict.slo.objectives]
    missed = Counter(column_of(own.objective) for own in objectives if own.status is Status.MISSED)
    return max(latency_columns(frame), key=lambda column: missed[column])


def figures(frame: Frame) -> Iterator[Figure]:
    """Yield all figures for which there are numbers, except the first one."""
    first = first_figure(frame)
    drawn = [
        *_over_loads(frame),
        *distributions(frame),
        *(timeline for name in frame.names for timeline in timelines(frame, name)),
    ]
    yield from (figure for figure in drawn if first is None or figure.key != first.key)


def _over_loads(frame: Frame) -> Iterator[Figure]:
    if len(frame.stages) < 2:
        return
    latencies = latency_columns(frame)  # counted since a request was due, if the SLO limits those
    titles = {column.title for column in latencies}
    further = [column for column in columns("chart", frame.since_due) if column.title not in titles]
    for column in (*latencies, *further):
        if (figure := by_load(frame, column)) is not None:
            yield figure
    if (trade := pareto(frame)) is not None:
        yield trade


def by_load(frame: Frame, column: Column) -> Figure | None:
    """Draw each engine's statistic at each load, with the limit of the SLO."""
    series = []
    for engine in frame.engines:
        stages = [stage for stage in frame.stages if engine.at(stage.label)]
        points = [_point(frame, engine.label, stage, engine.column(stage.label, column), column) for stage in stages]
        series.append(Series(engine.label, tuple(point for point in points if point.y is not None)))
    values = [y for drawn in series for point in drawn.points if (y := point.y) is not None and math.isfinite(y)]
    if not values:
        return None
    objective = next((objective for objective in frame.objectives if column_of(objective) == column), None)
    return Figure(
        key=column.key.replace(" ", "-"),
        title=column.title if isinstance(column.measure, Metric) else column.full_title,
        kind="load",
        x=_load_axis(frame),
        y=Axis(column.title, column.unit, _logarithmic(values)),
        series=tuple(drawn for drawn in series if drawn.points),
        limit=objective.limit if objective is not None else None,
        limit_title="SLO" if objective is not None else "",
        at=next((_place(frame, stage) for stage in frame.stages if stage.label == frame.stage), None),
    )


def _point(frame: Frame, engine: str, stage: StageView, estimate: Estimate, shown: Column | None = None) -> Point:
    """If another metric than the one that is shown missed its limit, name it."""
    verdict = frame.verdict(engine, stage.label)
    objectives = () if verdict is None or shown is None else verdict.objectives
    missed = [own.objective for own in objectives if own.status is Status.MISSED]
    others = [] if any(column_of(objective) == shown for objective in missed) else missed
    failed = estimate.value is not None and math.isinf(estimate.value)
    high = None if estimate.high is None or math.isinf(estimate.high) else estimate.high
    return Point(
        x=_place(frame, stage),
        y=estimate.value,
        low=None if failed else estimate.low,
        high=None if failed else high,
        label=stage.label,
        status=None if verdict is None else verdict.status,
        confirmed=verdict is None or verdict.confirmed,
        missed=", ".join(dict.fromkeys(objective.text.partition(" ")[0] for objective in others)),
    )


def _place(frame: Frame, stage: StageView) -> float:
    labels = [view.label for view in frame.stages]
    return stage.load if frame.loads_make_axis else float(labels.index(stage.label))


def _load_axis(frame: Frame) -> Axis:
    if not frame.loads_make_axis:
        return Axis("stage", names=tuple(stage.label for stage in frame.stages))
    return Axis(frame.stages[0].load_unit, logarithmic=_logarithmic([stage.load for stage in frame.stages]))


def _logarithmic(values: list[float]) -> bool:
    positive = [value for value in values if value > 0]
    return len(positive) > 1 and max(positive) / min(positive) > LOGARITHMIC


def pareto(frame: Frame) -> Figure | None:
    """Draw output tokens/s of a replica against the speed that one user sees."""
    series = []
    for engine in frame.engines:
        points = []
        for stage in frame.stages:
            speed, output = (engine.value(stage.label, name) for name in (USER_THROUGHPUT, THROUGHPUT))
            if speed and output:
                verdict = frame.verdict(engine.label, stage.label)
                status, confirmed = (None, True) if verdict is None else (verdict.status, verdict.confirmed)
                points.append(Point(speed, output, label=stage.label, status=status, confirmed=confirmed))
        series += [Series(engine.label, tuple(points))] if points else []
    if not series:
        return None
    title = "Output tokens/s of a replica against tokens/s of one user"
    return Figure("pareto", title, "pareto", Axis("tokens/s of one user"), Axis("output tokens/s"), tuple(series))


def distributions(frame: Frame) -> Iterator[Figure]:
    """Yield the distribution of each latency at the common load, over answered requests of each engine's first run."""
    stage = frame.stage or (frame.stages[-1].label if frame.stages else "")
    for metric in REQUEST_METRICS:
        if metric.shown.curve:
            series = []
            for engine in frame.engines:
                curves = [view.curves[metric.name] for view in engine.at(stage) if metric.name in view.curves]
                if curves:
                    points = zip(CURVE, curves[0], strict=True)
                    series.append(Series(engine.label, tuple(Point(q, value) for q, value in points)))
            if series:
                values = [value for drawn in series for point in drawn.points if (value := point.y) is not None]
                yield Figure(
                    key=f"{metric.name}-distribution",
                    title=f"{metric.short_title} at {stage}, by percentile of the answered requests",
                    kind="distribution",
                    x=Axis("percentile"),
                    y=Axis(metric.short_title, metric.unit, _logarithmic(values)),
                    series=tuple(series),
                )


def timelines(frame: Frame, name: str) -> Iterator[Figure]:
    """Yield requests in flight and output tokens/s over an engine's first run."""
    run = frame.engine(name).runs[0]
    spans = tuple(Span(stage.start, stage.end, stage.label) for stage in run.stages)
    for quantity, values in zip(FLOW, (run.flow.in_flight, run.flow.throughput), strict=True):
        points = tuple(Point(k * run.flow.step, value) for k, value in enumerate(values))
        if points:
            yield Figure(
                key=f"{quantity.name}-{name}",
                title=f"{name}: {quantity.title} ({quantity.unit}) from start to end of the first run",
                kind="time",
                x=Axis("time", "s"),
                y=Axis(quantity.title, quantity.unit),
                series=(Series(name, points),),
                spans=spans,
            )
