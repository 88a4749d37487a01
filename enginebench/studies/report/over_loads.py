"""Sections over the loads: throughput against each user's speed, latency, scaling, and what fits within limits."""

from __future__ import annotations

import math
from collections.abc import Iterator

from enginebench.analysis.compare.engine_runs import DECIDING, EngineRuns, since_due
from enginebench.analysis.compare.growth import saturated_from
from enginebench.analysis.console import TextTable
from enginebench.analysis.report.axis import Place
from enginebench.analysis.report.figure import Figure, figure
from enginebench.analysis.report.load_charts import TABLE, Point, column_figure, load_rows, over_loads
from enginebench.analysis.report.sections import matrix_table
from enginebench.analysis.report.trade_off_charts import pareto_figure
from enginebench.analysis.stats.repeats import ratio_interval
from enginebench.records.formatting import MISSING, PLAIN, significant
from enginebench.records.metrics import columns
from enginebench.records.view import Estimate
from enginebench.studies.report.contents import MeasuredPart, StudyReport
from enginebench.studies.report.expected import brief
from enginebench.studies.report.section import Section, of_model, titled

NO_LOADS = "no part of this study has several loads"
TAIL = "p99"
MOST_ROWS = 16  # of a table that is not folded
LATENCIES = ("ttft", "ttft_user", "tpot")


def pareto(study: StudyReport) -> Section:
    """The decision's own stands on the first screen."""
    found = [(each, pareto_figure(each.figures)) for each in study.over_loads if each is not study.head]
    figures = [titled(of, each, study) for each, of in found if of is not None]
    return Section("Throughput against each user's speed", figures=tuple(figures))


def latency(study: StudyReport) -> Section:
    """TTFT p99 and TPOT p99 against users, with the limits of the SLO."""
    figures = []
    for each in study.over_loads:
        shown = [column for column in columns("chart", since_due(each.runs)) if column.name in LATENCIES]
        found = (column_figure(each.figures, column) for column in shown if column.statistic == TAIL)
        figures += [titled(of, each, study) for of in found if of is not None]
    return Section("TTFT and TPOT against the load", figures=tuple(figures), why="" if figures else NO_LOADS)


def scaling(study: StudyReport) -> Section:
    sentences: list[str] = []
    figures: list[Figure] = []
    rows: list[tuple[str, ...]] = []
    limit = brief().criteria["scaling"].value
    for each in study.over_loads:
        points = [point for engine in each.engines for point in efficiencies(each, engine)]
        if points:
            figures.append(titled(_figure(each, points, limit), each, study))
            rows += [_row(each, engine, limit, study) for engine in each.engines]
        sentences += [f"{of_model(each, study)}{sentence}" for sentence in each.report.growth]
    if not figures:
        return Section("Scaling", tuple(sentences), why="no part of this study has one user and more beside it")
    headers = ("model", "engine", f"{limit:g} or more up to", "at the most users", "saturates at")
    caption = "X(N) / (N · X(1)), with X the output tokens/s and N the users; 1 is linear. Measured loads only."
    table = TextTable("How far each engine scales", headers, tuple(rows), (0, 1), caption)
    only = [] if len({row[0] for row in rows}) > 1 else ["model"]
    return Section("Scaling", tuple(sentences), tuple(figures), (table.without(only),))


def efficiencies(measured: MeasuredPart, engine: EngineRuns) -> list[Point]:
    """X(N) / (N · X(1)) of an engine at each load that all its runs have; empty without one user alone."""
    places = {place.at: place for place in measured.figures.axis.places}
    alone = [] if 1.0 not in places else [view.value(DECIDING) for view in engine.at(places[1.0].label)]
    base = [value for value in alone if value]
    if not base or len(base) < len(engine.runs):
        return []
    points: list[Point] = []
    for load, place in places.items():
        values = [value for view in engine.at(place.label) if (value := view.value(DECIDING)) is not None]
        if len(values) == len(base):
            estimate = Estimate(1.0) if load == 1 else ratio_interval(values, base, paired=True).scaled(1 / load)
            points.append((engine.label, place, estimate))
    return points


def _figure(measured: MeasuredPart, points: list[Point], limit: float) -> Figure:
    rows = load_rows(points, PLAIN)
    line = [{"value": limit, "text": f"{limit:g}"}]
    chart = over_loads(rows, measured.styles, measured.figures.axis, line)
    title = "Scaling: X(N) / (N · X(1)) against users"
    note = f"1 is linear scaling. The line at {limit:g} is the brief's criterion, up to the hardware's limit."
    return figure("scaling", title, note, chart, TABLE, rows, measured.styles)


def _row(measured: MeasuredPart, engine: EngineRuns, limit: float, study: StudyReport) -> tuple[str, ...]:
    points = efficiencies(measured, engine)
    kept: Place | None = None
    for _, place, estimate in points:
        if (estimate.value or 0.0) < limit:
            break
        kept = place
    last = next((estimate.value for _, _, estimate in reversed(points) if estimate.value is not None), None)
    rates = [(place.label, engine.value(place.label, DECIDING)) for place in measured.figures.axis.places]
    known = [(label, rate) for label, rate in rates if rate is not None and math.isfinite(rate)]
    return (
        measured.model,
        engine.label,
        MISSING if kept is None else kept.label,
        MISSING if last is None else significant(last),
        saturated_from(known) or "not within these loads",
    )


def matrix(study: StudyReport) -> Section:
    tables = tuple(_matrices(study))
    folded = tuple(table for table in tables if len(table.rows) > MOST_ROWS)
    shown = tuple(table for table in tables if table not in folded)
    why = "" if tables else "no part with several loads was judged"
    return Section("Capacity within pairs of limits", tables=shown, folded=folded, why=why)


def _matrices(study: StudyReport) -> Iterator[TextTable]:
    for each in study.over_loads:
        table = matrix_table(each.report)
        if table is not None:
            title = f"{of_model(each, study)}{table.title}"
            yield TextTable(title, table.headers, table.rows, table.texts, table.caption)
