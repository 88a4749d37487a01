"""The candidates: a row for each engine, or for each load of a single engine, with all that the answer rests on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from enginebench.analysis.answer import HOURS_A_MONTH, Replicas
from enginebench.analysis.document import Cell, Column, Number, Table, Tone, Word
from enginebench.analysis.frame import Frame, column_of
from enginebench.analysis.tested import number_format
from enginebench.analysis.verdict.differences import Kind
from enginebench.analysis.verdict.slo import SloVerdict, Status
from enginebench.records.load import Load
from enginebench.records.metrics import (
    BY_NAME,
    FAILURE_SHARE,
    PERCENTILES,
    QUANTITY_BY_NAME,
    THROUGHPUT,
    TPOT,
    TTFT,
)
from enginebench.records.metrics import Column as MetricColumn
from enginebench.records.view import Estimate

KEY = "candidates"
TOKENS = MetricColumn(QUANTITY_BY_NAME[THROUGHPUT], "value")
SHOWN = ("p99", "p95", "p50")  # the highest percentile that enough requests support, if no SLO names one
COLUMNS_OF_DIFFERENCES = {Kind.MODEL: "model", Kind.MACHINE: "machine"}


@dataclass(frozen=True, slots=True)
class _Row:
    """One engine at one load."""

    engine: str
    stage: str
    load: float


def candidates(frame: Frame, replicas: Sequence[Replicas] = (), peak: Load | None = None) -> Table:
    """Engines at their common load, the best first; of one engine every load."""
    table = by_engine(frame, replicas, peak) if len(frame.engines) > 1 else by_load(frame)
    return table.without_empty_columns()


def by_load(frame: Frame) -> Table:
    """Every load of a single engine."""
    (engine,) = frame.engines
    rows = [_Row(engine.label, stage.label, stage.load) for stage in frame.stages]
    unit = frame.stages[0].load_unit
    named = any(stage.named for stage in frame.stages) or len({stage.load for stage in frame.stages}) < len(rows)
    place = Column("stage", text=True) if named else Column(unit)
    columns: list[tuple[Column, Callable[[_Row], Cell]]] = [
        (place, lambda row: Word(row.stage) if named else _load(row.load)),
        (Column("within the SLO", text=True), lambda row: frame.verdict(row.engine, row.stage)),
        (Column("requests within"), lambda row: _share(frame.verdict(row.engine, row.stage))),
        *_failures(frame, rows),
        *[_latency(frame, column) for column in latency_columns(frame)],
        (Column(TOKENS.of.unit), lambda row: _tokens(frame, row)),
    ]
    return _table(frame, "Loads", columns, rows)


def by_engine(frame: Frame, replicas: Sequence[Replicas], peak: Load | None) -> Table:
    """At the load that all were measured at; with a peak, each engine at its own capacity, which its replicas have."""
    planned = {replica.name: replica for replica in replicas}
    differs = {difference.kind: difference.values for difference in frame.differences}
    at = "" if peak else f" at {frame.stage}" if frame.stage is not None else ""
    loads = {view.label: view.load for view in frame.stages}
    stages = {name: (capacity_stage(frame, name) if peak else None) or frame.stage or "" for name in frame.names}
    rows = [_Row(name, stage, loads.get(stage, 0.0)) for name, stage in stages.items()]
    unit = frame.stages[0].load_unit if frame.stages else ""
    columns: list[tuple[Column, Callable[[_Row], Cell]]] = [
        (Column("engine", text=True), lambda row: Word(row.engine)),
        (Column("format", text=True, rank=3), lambda row: _format(frame, row.engine)),
        *[_difference(title, differs[kind]) for kind, title in COLUMNS_OF_DIFFERENCES.items() if kind in differs],
        (Column(f"{unit} within the SLO"), lambda row: frame.capacities.get(row.engine)),
        (Column(f"replicas for {peak.label if peak else ''}"), lambda row: _replicas(planned.get(row.engine))),
        (Column("replicas, simulated", rank=2), lambda row: _simulated(planned.get(row.engine))),
        (Column("a month"), lambda row: _month(planned.get(row.engine))),
        (Column("per 1M tokens", rank=3), lambda row: _per_million(planned.get(row.engine))),
        (Column(f"requests within{at}"), lambda row: _share(frame.verdict(row.engine, row.stage))),
        (Column(f"{TOKENS.of.unit}{at}"), lambda row: _tokens(frame, row)),
        *(
            []
            if peak
            else [(Column("over the next best"), lambda row: _ratio(frame, row.engine, frame.next_best(row.engine)))]
        ),
        *_failures(frame, rows),
        *[_latency(frame, column, at) for column in latency_columns(frame)],
    ]
    return _table(frame, _title(unit, replicas) if peak else "Candidates", columns, rows)


def capacity_stage(frame: Frame, name: str) -> str | None:
    """Return the stage at an engine's measured capacity."""
    capacity = frame.capacities.get(name)
    at = None if capacity is None else capacity.at_load
    return None if at is None else at.stage


def _load(load: float) -> Cell:
    return Number(Estimate(load), style="count" if load.is_integer() else "plain")


def _difference(title: str, values: Mapping[str, str]) -> tuple[Column, Callable[[_Row], Cell]]:
    return Column(title, text=True, rank=4), lambda row: Word(values[row.engine])


def _table(
    frame: Frame, title: str, columns: Sequence[tuple[Column, Callable[[_Row], Cell]]], rows: Sequence[_Row]
) -> Table:
    cells = tuple(tuple(cell(row) for _, cell in columns) for row in rows)
    engines = 0 if len(frame.engines) > 1 else None
    return Table(KEY, title, tuple(column for column, _ in columns), cells, engines)


def latency_columns(frame: Frame) -> tuple[MetricColumn, ...]:
    """TTFT and TPOT at the percentiles that the SLO names; a metric that it does not name at the percentile of the
    others, and without an SLO at the highest that enough requests support."""
    named = [column for objective in frame.tier if (column := column_of(objective)) is not None]
    metrics = {column.name: column for column in named}
    due = frame.since_due or any(objective.metric == TTFT for objective in frame.tier)
    first = BY_NAME[BY_NAME[TTFT].since_due or TTFT] if due else BY_NAME[TTFT]
    statistic = named[0].statistic if named else _percentile(frame)
    fill = [MetricColumn(metric, statistic) for metric in (first, BY_NAME[TPOT]) if metric.name not in metrics]
    return tuple(sorted([*named, *fill], key=lambda column: list(BY_NAME).index(column.name)))


def _percentile(frame: Frame) -> str:
    requests = min((view.requests for engine in frame.engines for view in engine.at(frame.stage or "")), default=0)
    return next((p for p in SHOWN if requests * (1 - PERCENTILES[p]) >= 1), SHOWN[-1])


def _latency(frame: Frame, column: MetricColumn, at: str = "") -> tuple[Column, Callable[[_Row], Cell]]:
    def cell(row: _Row) -> Cell:
        engine = frame.engine(row.engine)
        if not engine.at(row.stage):
            return None
        estimate = engine.column(row.stage, column)
        verdict = frame.verdict(row.engine, row.stage)
        missed = verdict is not None and any(
            each.status is Status.MISSED and column_of(each.objective) == column for each in verdict.objectives
        )
        return Number(
            estimate, column.unit, tone=Tone.BAD if missed else Tone.PLAIN, answered=engine.answered(row.stage, column)
        )

    return Column(f"{column.title}{at}"), cell


def _failures(frame: Frame, rows: Sequence[_Row]) -> list[tuple[Column, Callable[[_Row], Cell]]]:
    """Only if some request failed."""

    def cell(row: _Row) -> Cell:
        views = frame.engine(row.engine).at(row.stage)
        share = frame.engine(row.engine).value(row.stage, FAILURE_SHARE) if views else None
        return Number(Estimate(share), "share", tone=Tone.BAD if share else Tone.PLAIN)

    failed = any(view.failed for row in rows for view in frame.engine(row.engine).at(row.stage))
    return [(Column("failed"), cell)] if failed else []


def _tokens(frame: Frame, row: _Row) -> Cell:
    engine = frame.engine(row.engine)
    return Number(engine.column(row.stage, TOKENS), TOKENS.unit) if engine.at(row.stage) else None


def _share(verdict: SloVerdict | None) -> Cell:
    return None if verdict is None else Number(Estimate(verdict.share, n=verdict.n), "share", "part")


def confirmed(verdict: SloVerdict | None) -> Cell:
    """By its interval, by its runs ("5 of 5 runs"), or not."""
    if verdict is None:
        return None
    if verdict.confirmed and verdict.by_runs:
        return Word(f"{verdict.agreeing} of {verdict.runs} runs")
    return Word("yes") if verdict.confirmed else Word("no", Tone.CAUTION)


def _ratio(frame: Frame, name: str, over: str | None) -> Cell:
    compared = frame.compared(name, over)
    if compared is None:
        return None
    return Number(compared.ratio, "×", "ratio", significant=compared.significant)


def _format(frame: Frame, name: str) -> Cell:
    formats = frame.tested.formats
    own = number_format(frame.engine(name))
    return None if own is None or len(set(formats.values())) < 2 else Word(own)


def _replicas(replicas: Replicas | None) -> Cell:
    if replicas is None or (replicas.count is None and replicas.missing is None):
        return None
    if replicas.missing is not None:
        return Word(replicas.missing.value, Tone.CAUTION)
    rough = replicas.capacity is not None and not replicas.capacity.confirmed
    return Number(Estimate(replicas.count), style="count", approximate=rough)


def _simulated(replicas: Replicas | None) -> Cell:
    if replicas is None or (replicas.simulated is None and replicas.not_simulated is None):
        return None
    if replicas.not_simulated is not None:
        return Word(replicas.not_simulated.value, Tone.DIM)
    return Number(Estimate(replicas.simulated), style="count")


def _title(unit: str, replicas: Sequence[Replicas]) -> str:
    """The load of each row, and the price of a replica if all have the same."""
    months = [(each.month, each.number) for each in replicas if each.month is not None and each.number]
    prices = {round(month / number / HOURS_A_MONTH, 4) for month, number in months}
    price = f"; a replica costs ${prices.pop():.2f} an hour" if len(prices) == 1 else ""
    return f"Candidates, each at its {unit} within the SLO{price}"


def _month(replicas: Replicas | None) -> Cell:
    return None if replicas is None or replicas.month is None else Number(Estimate(replicas.month), "$", "money")


def _per_million(replicas: Replicas | None) -> Cell:
    return (
        None if replicas is None or replicas.per_million.value is None else Number(replicas.per_million, "$", "money")
    )
