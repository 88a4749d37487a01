"""All runs of a folder as a table: their setup, numbers at the highest load within the SLO, and warnings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from enginebench.analysis.data.run_data import NotARun
from enginebench.analysis.document import Cell, Column, Number, Table, Tone, Word
from enginebench.analysis.frame import frame_of
from enginebench.analysis.summary.run_summary import RunSummary, read_summary
from enginebench.records.files import META, read_document
from enginebench.records.metrics import columns
from enginebench.records.view import SEVERITIES

SHOWN = columns("table", since_due=True)


class IndexedFacts(msgspec.Struct):
    """The facts that all versions write into `meta.json`."""

    run_id: str
    started_at: str = ""
    label: str = ""
    model: str | None = None
    scenario: str = ""


@dataclass(frozen=True, slots=True)
class IndexedRun:
    """`summary` is `None` if the run was never reported on."""

    facts: IndexedFacts
    summary: RunSummary | None


def runs_in(folder: Path) -> list[IndexedRun]:
    """List the runs, the newest first; ignore other folders."""
    runs = filter(None, (_indexed(meta.parent) for meta in folder.glob(f"*/{META}")))
    return sorted(runs, key=lambda run: run.facts.started_at, reverse=True)


def _indexed(folder: Path) -> IndexedRun | None:
    try:
        facts = read_document(folder / META, IndexedFacts)
    except (OSError, ValueError):
        return None
    try:
        summary = read_summary(folder)
    except NotARun:
        summary = None
    return IndexedRun(facts, summary)


def index(runs: list[IndexedRun]) -> Table:
    headings = [Column(title, text=True) for title in ("run", "engine", "model", "scenario", "load", "warnings")]
    headings[5:5] = [Column(column.title, rank=1 + place) for place, column in enumerate(SHOWN)]
    rows = tuple(tuple(_cells(run)) for run in runs)
    return Table("runs", "Runs", tuple(headings), rows, rows_shown=len(rows))


def _cells(run: IndexedRun) -> Iterator[Cell]:
    facts = run.facts
    yield from (Word(text or "") for text in (facts.run_id, facts.label, facts.model, facts.scenario))
    if run.summary is None or not run.summary.stages:
        yield from (Word("no report yet", Tone.DIM), *(None for _ in SHOWN), None)
        return
    frame = frame_of([run.summary])
    (engine,) = frame.engines
    capacity = frame.capacities.get(engine.label)
    met = None if capacity is None else capacity.at_load
    stage = frame.stages[-1].label if met is None else met.stage
    yield Word(stage)
    for column in columns("table", frame.since_due):
        estimate = engine.shown(stage, column)
        yield None if estimate.value is None else Number(estimate, column.unit)
    counts = Counter(finding.severity for finding in run.summary.findings)
    grave = [f"{counts[severity]} {severity}" for severity in SEVERITIES if counts[severity]]
    yield Word(", ".join(grave) or "none", Tone.BAD if run.summary.invalid else Tone.PLAIN)
