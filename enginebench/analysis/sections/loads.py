"""Every load of every engine: requests, verdicts, latencies and throughput, with intervals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from enginebench.analysis.document import (
    ENGINE,
    LOAD,
    REQUESTS,
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
from enginebench.analysis.sections.candidates import confirmed, within
from enginebench.records.metrics import (
    ACHIEVED_RATE,
    CLIENT_ERROR,
    FAILURE_SHARE,
    QUANTITY_BY_NAME,
    ROUND_TRIP,
    TTFT_PARTS,
    Quantity,
    columns,
)
from enginebench.records.view import Estimate, StageView

PARTS = (*TTFT_PARTS, ROUND_TRIP, CLIENT_ERROR)
RANKS = {"p50": 2, "p95": 1}  # percentiles that a narrow terminal drops, the lower first


def loads(frame: Frame) -> Section:
    """Fold the section for a single engine: the candidates table has the same rows."""
    details = [table for table in (_parts(frame), _turns(frame)) if table.rows]
    return Section("loads", "Results by load", (_results(frame), *details), folded=len(frame.engines) == 1)


def places(frame: Frame) -> Iterator[tuple[StageView, str]]:
    """Yield each load of each engine, in the order of the loads."""
    for stage in frame.stages:
        for engine in frame.engines:
            if engine.at(stage.label):
                yield stage, engine.label


def _results(frame: Frame) -> Table:
    shown = columns("table", frame.since_due)
    open_loop = frame.tested.open_loop
    headings = [LOAD, ENGINE, replace(REQUESTS, rank=2), Column("failed")]
    headings += [Column("achieved", "req/s", rank=3)] if open_loop else []
    headings += [Column("SLO", text=True), Column("within"), Column("confirmed", text=True, rank=4)]
    headings += [Column(column.title, rank=RANKS.get(column.statistic, 0)) for column in shown]
    rows = []
    for stage, name in places(frame):
        engine, verdict = frame.engine(name), frame.verdict(name, stage.label)
        views = engine.at(stage.label)
        failed = engine.value(stage.label, FAILURE_SHARE)
        cells: list[Cell] = [Word(stage.label), Word(name)]
        cells.append(count(sum(view.requests for view in views)))
        cells.append(Number(Estimate(failed), "share", tone=Tone.BAD) if failed else None)
        cells += [Number(engine.estimate(stage.label, ACHIEVED_RATE), "req/s")] if open_loop else []
        cells += [verdict, within(verdict), confirmed(verdict)]
        for column in shown:
            estimate, answered = engine.shown(stage.label, column), engine.answered(stage.label, column)
            cells.append(Number(estimate, column.unit, answered=answered))
        rows.append(tuple(cells))
    engines = 1 if len(frame.engines) > 1 else None
    table = Table("results", "Results by load", tuple(headings), tuple(rows), engines)
    return table.without_empty_columns().with_shared_units()


def _parts(frame: Frame) -> Table:
    """Split the mean TTFT into the parts that the servers send, with the network's share and the client's error."""
    rows = []
    for stage, name in places(frame):
        values = [frame.engine(name).value(stage.label, part) for part in PARTS]
        if any(value is not None for value in values):
            numbers = [None if value is None else Number(Estimate(value), "s") for value in values]
            rows.append((Word(stage.label), Word(name), *numbers))
    titles = [QUANTITY_BY_NAME[name].title.removeprefix("TTFT: ") for name in PARTS]
    engines = 1 if len(frame.engines) > 1 else None
    headings = (LOAD, ENGINE, *map(Column, titles))
    return Table("parts", "Where TTFT comes from", headings, tuple(rows), engines).without_empty_columns()


def _turns(frame: Frame) -> Table:
    """Show how TTFT grows from turn to turn of a conversation, in each engine's first run."""
    rows = []
    for stage, name in places(frame):
        for turn in frame.engine(name).at(stage.label)[0].turns:
            prompt = Number(Estimate(turn.prompt_tokens), style="count")
            numbers = (count(turn.turn), count(turn.requests), prompt, Number(turn.ttft, "s"))
            rows.append((Word(stage.label), Word(name), *numbers))
    headings = (LOAD, ENGINE, Column("turn"), REQUESTS, Column("prompt tokens"), Column("TTFT p50"))
    engines = 1 if len(frame.engines) > 1 else None
    return Table("turns", "TTFT by turn of a conversation", headings, tuple(rows), engines)


def bottleneck(frame: Frame, name: str, below: str | None, above: str | None) -> Quantity | None:
    """Return the part of TTFT that grew most between two loads; `None` if the server does not send the parts."""
    if below is None or above is None:
        return None
    engine = frame.engine(name)
    ends = [(engine.value(below, part), engine.value(above, part)) for part in TTFT_PARTS]
    grown = {part: b - a for part, (a, b) in zip(TTFT_PARTS, ends, strict=True) if a is not None and b is not None}
    part, seconds = max(grown.items(), key=lambda item: item[1], default=("", 0.0))
    return QUANTITY_BY_NAME[part] if seconds > 0 else None
