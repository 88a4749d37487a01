"""Figures of a frame: a metric by load, throughput against speed, distributions, and a run from start to end."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from enginebench.analysis.document import TIMES_LIMIT, Axis, Figure, Point, Series, Span
from enginebench.analysis.engine_runs import EngineRuns
from enginebench.analysis.frame import Frame, column_of
from enginebench.analysis.sections.candidates import latency_columns
from enginebench.analysis.summary.distributions import CURVE
from enginebench.records.formatting import in_words
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
from enginebench.records.slo import Objective
from enginebench.records.view import Estimate, StageView

FLOW = (QUANTITY_BY_NAME[CONCURRENCY], QUANTITY_BY_NAME[THROUGHPUT])


def first_figure(frame: Frame) -> Figure | None:
    """Draw, for every candidate, how much of the SLO's limits each load uses; without an SLO, throughput against speed,
    or TTFT if no answer has a second token. If only one load was measured, draw the distribution of TTFT."""
    if len(frame.stages) < 2:
        return next(distributions(frame), None)
    if frame.one_token:
        return by_load(frame, frame.speed)
    if len(frame.objectives) > 1:
        return limits_used(frame)
    trade = pareto(frame) if not frame.objectives and len(frame.engines) > 1 else None
    limited = next((column_of(objective) for objective in frame.objectives), None)
    return trade or by_load(frame, limited or latency_columns(frame)[0])


def limits_used(frame: Frame) -> Figure | None:
    """Draw the largest limited value as a multiple of its limit: above 1, the SLO is missed."""
    series = []
    for engine in frame.engines:
        stages = [stage for stage in frame.stages if engine.at(stage.label)]
        points = [_point(frame, engine.label, stage, _largest(frame, engine, stage.label)) for stage in stages]
        series.append(Series(engine.label, tuple(point for point in points if point.y is not None)))
    ratios = [objective.text.replace("≤", "÷") for objective in frame.objectives]
    axis = Axis(f"the {'larger' if len(ratios) == 2 else 'largest'} of {in_words(ratios)}", TIMES_LIMIT)
    return _over_load(frame, "limits-used", "How close to the SLO", axis, series, 1.0)


def _largest(frame: Frame, engine: EngineRuns, stage: str) -> Estimate:
    """Return the largest multiple of a limit; an estimate without a value if any is missing. It has no interval: marks
    say which verdicts are confirmed, by other evidence than the spread of a percentile over runs."""
    multiples = [_multiple(engine, stage, objective) for objective in frame.objectives]
    values = [multiple for multiple in multiples if multiple is not None]
    return Estimate(max(values)) if len(values) == len(multiples) else Estimate(None)


def _multiple(engine: EngineRuns, stage: str, objective: Objective) -> float | None:
    fault, column = objective.fault, column_of(objective)
    if fault is not None:
        return engine.estimate(stage, fault.share).scaled(1 / (1 - objective.q)).value
    if column is None:  # a percentile that is not computed has no place in the figure
        return None
    return engine.column(stage, column).scaled(1 / objective.limit).value


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
    latencies = latency_columns(frame)  # from the due time, if the SLO limits such latencies
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
        points = [_point(frame, engine.label, stage, engine.shown(stage.label, column)) for stage in stages]
        series.append(Series(engine.label, tuple(point for point in points if point.y is not None)))
    objective = next((objective for objective in frame.objectives if column_of(objective) == column), None)
    title = column.title if isinstance(column.measure, Metric) else column.full_title
    axis, limit = Axis(column.title, column.unit), None if objective is None else objective.limit
    return _over_load(frame, column.key.replace(" ", "-"), title, axis, series, limit)


def _over_load(
    frame: Frame, key: str, title: str, axis: Axis, series: Sequence[Series], limit: float | None
) -> Figure | None:
    if not any(math.isfinite(point.y) for drawn in series for point in drawn.points if point.y is not None):
        return None
    return Figure(
        key=key,
        title=title,
        kind="load",
        x=_load_axis(frame),
        y=axis,
        series=tuple(drawn for drawn in series if drawn.points),
        limit=limit,
        at=next((_place(frame, stage) for stage in frame.stages if stage.label == frame.stage), None),
    )


def _point(frame: Frame, engine: str, stage: StageView, estimate: Estimate) -> Point:
    verdict = frame.verdict(engine, stage.label)
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
    )


def _place(frame: Frame, stage: StageView) -> float:
    labels = [view.label for view in frame.stages]
    return stage.load if frame.loads_make_axis else float(labels.index(stage.label))


def _load_axis(frame: Frame) -> Axis:
    if not frame.loads_make_axis:
        parts = [stage.label.partition(" ") for stage in frame.stages]
        units = {unit for _, _, unit in parts}
        if len(units) == 1 and all(number.isdigit() for number, _, _ in parts):
            return Axis(units.pop(), names=tuple(number for number, _, _ in parts))  # `10 prompt tokens`
        return Axis("stage", names=tuple(stage.label for stage in frame.stages))
    return Axis(frame.stages[0].load_unit)


def pareto(frame: Frame) -> Figure | None:
    """Draw output tokens/s of a replica against the speed for one user."""
    series = []
    for engine in frame.engines:
        points = []
        for stage in frame.stages:
            speed, output = (engine.value(stage.label, name) for name in (USER_THROUGHPUT, THROUGHPUT))
            if speed and output:
                points.append(replace(_point(frame, engine.label, stage, Estimate(output)), x=speed))
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
                yield Figure(
                    key=f"{metric.name}-distribution",
                    title=f"{metric.short_title} at {stage}, by percentile of the answered requests",
                    kind="distribution",
                    x=Axis("percentile"),
                    y=Axis(metric.short_title, metric.unit),
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
