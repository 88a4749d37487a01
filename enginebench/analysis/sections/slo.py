"""The SLO in detail: individual objectives, the probes of a capacity search, classes of requests."""

from __future__ import annotations

from collections.abc import Iterator

from enginebench.analysis.document import (
    ENGINE,
    LOAD,
    REQUESTS,
    Block,
    Cell,
    Column,
    Number,
    Section,
    Table,
    Tone,
    Word,
    count,
)
from enginebench.analysis.frame import Frame
from enginebench.analysis.sections.loads import places
from enginebench.analysis.stats.pooled_percentile import pooled_percentile
from enginebench.analysis.verdict.slo_verdict import Status, status_of_class
from enginebench.records.metrics import Column as MetricColumn
from enginebench.records.metrics import Metric, columns, supported
from enginebench.records.view import ClassView, Estimate

TONES = {Status.MET: Tone.GOOD, Status.MISSED: Tone.BAD, Status.NOT_MEASURED: Tone.CAUTION}


def slo(frame: Frame) -> Section:
    tables = (_objectives(frame), _probes(frame), _classes(frame))
    return Section("slo", "Service-level objectives", tuple(table for table in tables if table is not None))


def _objectives(frame: Frame) -> Table | None:
    """Show the share of requests within each objective's limit, if there are several objectives."""
    if len(frame.objectives) < 2:
        return None
    rows: list[tuple[Cell, ...]] = []
    for stage, name in places(frame):
        verdict = frame.verdict(name, stage.label)
        if verdict is not None:
            shares = [Number(part.judgement.share, "share", tone=TONES[part.status]) for part in verdict.objectives]
            rows.append((Word(stage.label), Word(name), *shares))
    headings = (LOAD, ENGINE, *(Column(objective.text) for objective in frame.objectives))
    title = "Share of requests within each limit"
    return Table("objectives", title, headings, tuple(rows), 1 if len(frame.names) > 1 else None)


def _probes(frame: Frame) -> Block | None:
    searches = [(run.label, run.search) for run in frame.runs if run.search is not None]
    if not searches:
        return None
    objectives = searches[0][1].objectives
    rows: list[tuple[Cell, ...]] = [
        (
            count(probe.stage + 1),
            Word(label),
            Number(Estimate(probe.load), search.unit),
            Word(probe.role),
            count(probe.requests),
            *(Number(Estimate(share.good), "share") for share in probe.shares),
            *(None for _ in objectives[len(probe.shares) :]),
            Word("not decided" if probe.verdict == "undecided" else probe.verdict),
        )
        for label, search in searches
        for probe in search.probes
    ]
    headings = (
        *(Column("probe"), ENGINE, Column(searches[0][1].unit), Column("purpose", text=True)),
        *(REQUESTS, *map(Column, objectives), Column("result", text=True)),
    )
    return Table("probes", "Probes of the capacity search", headings, tuple(rows))


def _classes(frame: Frame) -> Table | None:
    shown = [column for column in columns("compared", frame.since_due) if isinstance(column.measure, Metric)]
    shown = [column for column in shown if column.statistic == "p95"]
    rows = []
    for stage, engine in places(frame):
        classes = frame.classes(engine, stage.label)
        rows += [(Word(stage.label), Word(engine), *_class_cells(views, shown)) for views in classes.values()]
    if not rows:
        return None
    latencies = [Column(column.title) for column in shown]
    headings = (LOAD, ENGINE, Column("class", text=True), REQUESTS, Column("failed"), Column("SLO", text=True))
    return Table("classes", "Classes of requests", (*headings, *latencies), tuple(rows), 1).without_empty_columns()


def _class_cells(views: list[ClassView], shown: list[MetricColumn]) -> Iterator[Cell]:
    yield Word(views[0].name)
    yield count(sum(view.requests for view in views))
    yield count(sum(view.failed for view in views))
    status = status_of_class(views)
    yield None if status is None else Word(status.value, TONES[status])
    for column in shown:
        runs = [view.metrics[column.name] for view in views if column.name in view.metrics]
        estimate = pooled_percentile(runs, column.statistic) if runs else Estimate(None)
        yield Number(estimate, column.unit) if supported(column.statistic, estimate.n) else None
