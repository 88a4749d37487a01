"""Every load of every engine: requests, verdicts, latencies and throughput, with intervals."""

from __future__ import annotations

from collections.abc import Iterator

from enginebench.analysis.answer import Growth
from enginebench.analysis.document import Block, Cell, Column, Number, Section, Table, Tone, Word
from enginebench.analysis.frame import Frame
from enginebench.analysis.sections.candidates import confirmed
from enginebench.records.metrics import (
    ACHIEVED_RATE,
    FAILURE_SHARE,
    QUANTITY_BY_NAME,
    TTFT_PARTS,
    columns,
)
from enginebench.records.metrics import Column as MetricColumn
from enginebench.records.view import Estimate, StageView

RANKS = {"p50": 2, "p95": 1}  # percentiles that a narrow terminal goes without, the lower first
GROWTH = dict(zip(TTFT_PARTS, (Growth.CLIENT, Growth.QUEUE, Growth.PREFILL, Growth.DELIVERY), strict=True))


def loads(frame: Frame) -> Section:
    """Of a single engine the candidates table has the same rows."""
    parts = _parts(frame)
    blocks: tuple[Block, ...] = (_results(frame), *([] if parts is None else [parts]))
    return Section("loads", "Results by load", blocks, folded=len(frame.engines) == 1)


def _rows(frame: Frame) -> Iterator[tuple[StageView, str]]:
    for stage in frame.stages:
        for engine in frame.engines:
            if engine.at(stage.label):
                yield stage, engine.label


def _results(frame: Frame) -> Table:
    shown = columns("table", frame.since_due)
    open_loop = frame.tested.open_loop
    headings = [Column("load", text=True), Column("engine", text=True), Column("requests", rank=2), Column("failed")]
    headings += [Column("achieved", "req/s", rank=3)] if open_loop else []
    headings += [Column("SLO", text=True), Column("within"), Column("confirmed", text=True, rank=4)]
    headings += [Column(column.title, rank=RANKS.get(column.statistic, 0)) for column in shown]
    rows = []
    for stage, name in _rows(frame):
        engine, verdict = frame.engine(name), frame.verdict(name, stage.label)
        views = engine.at(stage.label)
        failed = engine.value(stage.label, FAILURE_SHARE)
        cells: list[Cell] = [Word(stage.label), Word(name)]
        cells.append(Number(Estimate(float(sum(view.requests for view in views))), style="count"))
        cells.append(Number(Estimate(failed), "share", tone=Tone.BAD) if failed else None)
        cells += [Number(engine.estimate(stage.label, ACHIEVED_RATE), "req/s")] if open_loop else []
        cells.append(verdict)
        cells.append(None if verdict is None else Number(Estimate(verdict.share, n=verdict.n), "share", "part"))
        cells.append(confirmed(verdict))
        cells += [_cell(frame, name, stage.label, column) for column in shown]
        rows.append(tuple(cells))
    engines = 1 if len(frame.engines) > 1 else None
    return Table("results", "Results by load", tuple(headings), tuple(rows), engines).without_empty_columns()


def _cell(frame: Frame, name: str, stage: str, column: MetricColumn) -> Cell:
    engine = frame.engine(name)
    return Number(engine.column(stage, column), column.unit, answered=engine.answered(stage, column))


def _parts(frame: Frame) -> Block | None:
    """The mean parts of TTFT, if the servers send them."""
    titles = [QUANTITY_BY_NAME[name].title.partition(": ")[2] for name in TTFT_PARTS]
    rows = []
    for stage, name in _rows(frame):
        parts = [frame.engine(name).value(stage.label, part) for part in TTFT_PARTS]
        if all(part is not None for part in parts):
            cells: list[Cell] = [Word(stage.label), Word(name), *(Number(Estimate(part), "s") for part in parts)]
            rows.append(tuple(cells))
    if not rows:
        return None
    headings = (Column("load", text=True), Column("engine", text=True), *(Column(title) for title in titles))
    return Table("parts", "Mean parts of TTFT", headings, tuple(rows), 1 if len(frame.engines) > 1 else None)


def growth(frame: Frame, name: str, below: str | None, above: str | None) -> Growth | None:
    """The part of TTFT that grew most between two loads; `None` if the server does not send the parts."""
    if below is None or above is None:
        return None
    engine = frame.engine(name)
    ends = [(engine.value(below, part), engine.value(above, part)) for part in TTFT_PARTS]
    grown = {part: b - a for part, (a, b) in zip(TTFT_PARTS, ends, strict=True) if a is not None and b is not None}
    part, seconds = max(grown.items(), key=lambda item: item[1], default=("", 0.0))
    return GROWTH[part] if seconds > 0 else None
