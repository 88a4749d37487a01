"""The candidates: a row for each engine, or for each load of a single engine, with the evidence for the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from enginebench.analysis.answer import HOURS_A_MONTH, Replicas
from enginebench.analysis.data.graded import Graded
from enginebench.analysis.document import (
    ENGINE,
    Cell,
    Column,
    Number,
    Style,
    Table,
    Tone,
    Word,
    count,
    money,
    part,
    word,
)
from enginebench.analysis.frame import Frame, column_of
from enginebench.analysis.verdict.differences import Kind
from enginebench.analysis.verdict.slo_verdict import SloVerdict, Status
from enginebench.records.formatting import format_money
from enginebench.records.load import Load
from enginebench.records.metrics import (
    BY_NAME,
    COLD_START,
    CORRECT,
    FAILURE_SHARE,
    OUTPUT_RATE,
    QUANTITY_BY_NAME,
    TAILS,
    TPOT,
    TTFT,
    supported,
)
from enginebench.records.metrics import Column as MetricColumn
from enginebench.records.view import Estimate

KEY = "candidates"
GRADED = Column(QUANTITY_BY_NAME[CORRECT].title)
LONGER = 1.2  # the table shows durations if one load was measured this many times as long as another
SHOWN = TAILS[::-1]  # the highest percentile that enough requests support, if no SLO names one
DIFFERING = {Kind.MODEL: "model", Kind.MACHINE: "machine"}


@dataclass(frozen=True, slots=True)
class _Row:
    """An engine at a load."""

    engine: str
    stage: str
    load: float


def candidates(frame: Frame, replicas: Sequence[Replicas] = (), peak: Load | None = None) -> Table:
    """Show the engines at their common load, the best first, or every load of a single engine."""
    table = by_engine(frame, replicas, peak) if len(frame.engines) > 1 else by_load(frame)
    return table.without_empty_columns().with_shared_units()


def by_load(frame: Frame) -> Table:
    (engine,) = frame.engines
    rows = [_Row(engine.label, stage.label, stage.load) for stage in frame.stages]
    unit = frame.stages[0].load_unit
    place = Column(unit) if frame.loads_make_axis else Column("stage", text=True)
    columns: list[tuple[Column, Callable[[_Row], Cell]]] = [
        (place, lambda row: _load(row.load) if frame.loads_make_axis else Word(row.stage)),
        (Column("SLO", text=True), lambda row: frame.verdict(row.engine, row.stage)),
        *_durations(frame, rows),
        (Column("requests within the limits"), lambda row: within(frame.verdict(row.engine, row.stage))),
        *_failures(frame, rows),
        *[_latency(frame, column) for column in latency_columns(frame)],
        (Column(OUTPUT_RATE.unit), lambda row: _speed(frame, row, OUTPUT_RATE)),
        (GRADED, lambda row: _correct(frame, row)),
    ]
    return _table(frame, "Loads", columns, rows)


def by_engine(frame: Frame, replicas: Sequence[Replicas], peak: Load | None) -> Table:
    """Show the engines at their common load; with a peak, in the order of `replicas`, each at its own capacity, the
    load of one of its replicas."""
    planned = {candidate.name: candidate for candidate in replicas}
    costs = {candidate.name: candidate.per_million for candidate in replicas}
    differs = {difference.kind: difference.values for difference in frame.differences}
    at = "" if peak else f" at {frame.stage}" if frame.stage is not None else ""
    loads = {view.label: view.load for view in frame.stages}
    stages = dict.fromkeys((*planned, *frame.names), frame.stage or "")
    if peak:
        ends = {name: capacity.at_load or capacity.at(capacity.beyond) for name, capacity in frame.capacities.items()}
        stages |= {name: verdict.stage for name, verdict in ends.items() if verdict is not None}
    following = dict(pairwise(frame.names))
    formats = frame.tested.formats if len(set(frame.tested.formats.values())) > 1 else {}
    rows = [_Row(name, stage, loads.get(stage, 0.0)) for name, stage in stages.items()]
    unit = frame.stages[0].load_unit if frame.stages else ""
    speed = frame.speed.title if frame.one_token else OUTPUT_RATE.unit
    columns: list[tuple[Column, Callable[[_Row], Cell]]] = [
        (ENGINE, lambda row: Word(row.engine)),
        (Column("format", text=True, rank=3), lambda row: word(formats.get(row.engine))),
        *[_differing(title, differs[kind]) for kind, title in DIFFERING.items() if kind in differs],
        (Column(f"{unit} within the SLO"), lambda row: frame.capacities.get(row.engine)),
        (Column(f"replicas for {peak.label if peak else ''}"), lambda row: _replicas(planned.get(row.engine))),
        (Column("a month"), lambda row: _month(planned.get(row.engine))),
        (Column("per 1M output tokens at capacity", rank=3), lambda row: _dollars(costs.get(row.engine))),
        *([(Column("measured at", text=True, rank=1), lambda row: Word(row.stage))] if peak else []),
        (Column(f"requests within the limits{at}"), lambda row: within(frame.verdict(row.engine, row.stage))),
        (Column(f"{speed}{at}"), lambda row: _speed(frame, row, frame.speed)),
        (GRADED, lambda row: _correct(frame, row)),
        *(
            []
            if peak
            else [
                (
                    Column(f"{speed} compared with the next row", rank=1),
                    lambda row: _ratio(frame, row.engine, following.get(row.engine)),
                )
            ]
        ),
        *_failures(frame, rows),
        *[_latency(frame, column, at) for column in latency_columns(frame)],
        (Column("cold start", rank=4), lambda row: _cold_start(frame, row)),
    ]
    if not peak:
        return _table(frame, "Candidates", columns, rows)
    prices = {round(r.month / r.number / HOURS_A_MONTH, 4) for r in replicas if r.month is not None and r.number}
    price = f"; a replica costs {format_money(prices.pop(), 2)} an hour" if len(prices) == 1 else ""
    return _table(frame, f"Candidates{price}", columns, rows)


def _load(load: float) -> Cell:
    return count(load) if load.is_integer() else Number(Estimate(load))


def _differing(title: str, values: Mapping[str, tuple[Any, ...]]) -> tuple[Column, Callable[[_Row], Cell]]:
    """Return a column for a difference between the engines: a name, or several facts about a machine."""

    def cell(row: _Row) -> Cell:
        names = [value if isinstance(value, str) else ", ".join(value or ()) for value in values[row.engine]]
        return Word(" | ".join(names))

    return Column(title, text=True, rank=4), cell


def _table(
    frame: Frame, title: str, columns: Sequence[tuple[Column, Callable[[_Row], Cell]]], rows: Sequence[_Row]
) -> Table:
    cells = tuple(tuple(cell(row) for _, cell in columns) for row in rows)
    engines = 0 if len(frame.engines) > 1 else None
    return Table(KEY, title, tuple(column for column, _ in columns), cells, engines)


def latency_columns(frame: Frame) -> tuple[MetricColumn, ...]:
    """Return TTFT and TPOT at the percentiles that the SLO names. A metric that is not in the SLO has the percentile of
    the others; without an SLO, both have the highest percentile that enough requests support."""
    named = [column for objective in frame.objectives if (column := column_of(objective)) is not None]
    metrics = {column.name: column for column in named}
    due = frame.since_due or any(objective.metric == TTFT for objective in frame.objectives)
    first = BY_NAME[BY_NAME[TTFT].since_due or TTFT] if due else BY_NAME[TTFT]
    requests = min((view.requests for engine in frame.engines for view in engine.at(frame.stage or "")), default=0)
    statistic = named[0].statistic if named else next((p for p in SHOWN if supported(p, requests)), SHOWN[-1])
    shown = (first,) if frame.one_token else (first, BY_NAME[TPOT])
    fill = [MetricColumn(metric, statistic) for metric in shown if metric.name not in metrics]
    columns = [column for column in (*named, *fill) if column != frame.speed]
    return tuple(sorted(columns, key=lambda column: list(BY_NAME).index(column.name)))


def _latency(frame: Frame, column: MetricColumn, at: str = "") -> tuple[Column, Callable[[_Row], Cell]]:
    def cell(row: _Row) -> Cell:
        engine = frame.engine(row.engine)
        if not engine.at(row.stage):
            return None
        estimate = engine.shown(row.stage, column)
        verdict = frame.verdict(row.engine, row.stage)
        missed = verdict is not None and any(
            own.status is Status.MISSED and column_of(own.objective) == column for own in verdict.objectives
        )
        return Number(
            estimate, column.unit, tone=Tone.BAD if missed else Tone.PLAIN, answered=engine.answered(row.stage, column)
        )

    return Column(f"{column.title}{at}"), cell


def _failures(frame: Frame, rows: Sequence[_Row]) -> list[tuple[Column, Callable[[_Row], Cell]]]:
    """Return a column if any request failed."""

    def cell(row: _Row) -> Cell:
        views = frame.engine(row.engine).at(row.stage)
        share = frame.engine(row.engine).value(row.stage, FAILURE_SHARE) if views else None
        return Number(Estimate(share), "share", tone=Tone.BAD if share else Tone.PLAIN)

    failed = any(view.failed for row in rows for view in frame.engine(row.engine).at(row.stage))
    return [(Column("failed"), cell)] if failed else []


def _durations(frame: Frame, rows: Sequence[_Row]) -> list[tuple[Column, Callable[[_Row], Cell]]]:
    """Return a column if some load was measured for longer than another."""
    seconds = {row.stage: sum(view.seconds for view in frame.engine(row.engine).at(row.stage)) for row in rows}
    if not seconds or max(seconds.values()) < LONGER * min(seconds.values()):
        return []
    return [(Column("duration", rank=2), lambda row: Number(Estimate(seconds[row.stage]), "s"))]


def _speed(frame: Frame, row: _Row, column: MetricColumn) -> Cell:
    engine = frame.engine(row.engine)
    return Number(engine.shown(row.stage, column), column.unit) if engine.at(row.stage) else None


def correct(load: Graded) -> Number:
    """Show how many questions were answered correctly, in red if significantly fewer than by a single user."""
    share = Estimate(load.correct / load.questions, n=load.questions)
    return Number(share, "share", "part", Tone.BAD if load.worse else Tone.PLAIN)


def _correct(frame: Frame, row: _Row) -> Cell:
    return next((correct(load) for load in frame.graded.get(row.engine, ()) if load.stage == row.stage), None)


def _cold_start(frame: Frame, row: _Row) -> Cell:
    seconds = frame.engine(row.engine).start(COLD_START)
    return None if seconds.value is None else Number(Estimate(seconds.value), "s")


def within(verdict: SloVerdict | None) -> Cell:
    return None if verdict is None else part(verdict.share, verdict.n)


def confirmed(verdict: SloVerdict | None) -> Cell:
    """Show whether the verdict is confirmed: by its interval ("yes"), or by its runs ("5 of 5 runs")."""
    if verdict is None:
        return None
    if verdict.confirmed and verdict.by_runs:
        return Word(f"{verdict.agreeing} of {verdict.runs} runs")
    return Word("yes") if verdict.confirmed else Word("no", Tone.CAUTION)


def _ratio(frame: Frame, name: str, over: str | None) -> Cell:
    compared = frame.compared(name, over)
    if compared is None:
        return None
    style: Style = "change" if frame.one_token else "ratio"
    return Number(compared.ratio, "×", style, significant=compared.significant, over=over or "")


def _replicas(replicas: Replicas | None) -> Cell:
    if replicas is None or (replicas.count is None and replicas.missing is None):
        return None
    if replicas.missing is not None:
        return Word(replicas.missing.value, Tone.CAUTION)
    simulated = None if replicas.at_most else replicas.simulated
    return replace(count(replicas.count), approximate=not replicas.confirmed, simulated=simulated)


def _month(replicas: Replicas | None) -> Cell:
    if replicas is None or replicas.month is None:
        return None
    return replace(money(Estimate(replicas.month)), approximate=not replicas.confirmed)


def _dollars(amount: Estimate | None) -> Cell:
    return None if amount is None or amount.value is None else money(amount)
