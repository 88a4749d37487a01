"""Everything needed to repeat the runs, and every number of each run."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from enginebench.analysis.document import ENGINE, Block, Cell, Code, Column, Number, Section, Table, Word
from enginebench.analysis.frame import Frame
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.files import PROFILE
from enginebench.records.metrics import PERCENTILES, TAILS, supported
from enginebench.records.view import Estimate, Missing

Facts = Mapping[str, Any]
SOURCES: tuple[tuple[str, Callable[[RunSummary], Facts]], ...] = (
    ("Engine", lambda run: run.engine or {}),
    ("Workload", lambda run: {"scenario": run.scenario, **run.workload}),
    ("Load generator", lambda run: run.host),
    ("Versions", lambda run: {**run.versions, "commit": run.commit, "url": run.url, "workers": run.workers}),
)
NUMBERS_KEPT = ("value", *TAILS, "count", "mean", "peak", "share")


def setup(frame: Frame) -> Section:
    blocks: list[Block] = [_facts(frame, title, read) for title, read in SOURCES]
    profiles = tuple(
        (Word(run.label), Word(f"runs/{run.run_id}/{PROFILE}/{name}")) for run in frame.runs for name in run.profile
    )
    if profiles:
        headings = (ENGINE, Column("file", text=True))
        blocks.append(Table("profiles", "Profiles", headings, profiles))
    blocks.append(Code(tuple(dict.fromkeys(shlex.join(run.command) for run in frame.runs))))
    return Section("setup", "How it was measured", tuple(blocks), folded=True)


def _facts(frame: Frame, title: str, read: Callable[[RunSummary], Facts]) -> Table:
    """Give each engine a column. If a fact differs between the runs of an engine, show all its values."""
    facts = {engine.label: [read(run) for run in engine.runs] for engine in frame.engines}
    names = dict.fromkeys(name for runs in facts.values() for run in runs for name in run)
    rows: list[tuple[Cell, ...]] = []
    for name in names:
        values = [
            tuple(dict.fromkeys(text for run in runs for text in _texts(run.get(name)))) for runs in facts.values()
        ]
        if any(values):
            rows.append(
                (Word(name.replace("_", " ")), *(Word(", ".join(value)) if value else None for value in values))
            )
    headings = (Column(title, text=True), *(Column(name, text=True) for name in facts))
    return Table(f"setup-{title}", title, headings, tuple(rows))


def _texts(value: Any) -> Iterator[str]:
    """Yield the leaves of a value, with names if it is a mapping; nothing for an empty value."""
    if isinstance(value, Mapping):
        yield from (f"{name} {text}" for name, part in value.items() for text in _texts(part))
    elif isinstance(value, list | tuple):
        yield from (text for part in value for text in _texts(part))
    elif value is not None and value != "":
        yield f"{value:g}" if isinstance(value, float) else str(value)


def numbers(frame: Frame) -> Section:
    """Show every number of each engine's first run, a column per load. The frame has the numbers of all runs."""
    return Section("numbers", "All numbers", tuple(_numbers(frame, name) for name in frame.names), folded=True)


def _numbers(frame: Frame, name: str) -> Table:
    run = frame.engine(name).runs[0]
    table = frame.table.filter(engine=name, repeat=run.repeat).drop_nulls("load")
    stages = list(dict.fromkeys(table["stage"]))
    cells: dict[tuple[str, str, str], dict[str, Cell]] = {}
    for row in table.iter_rows(named=True):
        few = row["statistic"] in PERCENTILES and not supported(row["statistic"], row["n"] or 0)
        if row["statistic"] in NUMBERS_KEPT and (row["value"] is not None or row["missing"]) and not few:
            missing = Missing(row["missing"]) if row["missing"] else None
            estimate = Estimate(row["value"], row["low"], row["high"], row["n"] or 0, missing=missing)
            key = (row["metric"], row["statistic"], row["unit"] or "")
            cells.setdefault(key, {})[row["stage"]] = Number(estimate, key[2])
    rows = tuple(
        (Word(f"{metric} {statistic}".replace("_", " ")), *(by_stage.get(stage) for stage in stages))
        for (metric, statistic, _), by_stage in cells.items()
    )
    headings = (Column(name, text=True), *(Column(stage) for stage in stages))
    return Table(f"numbers-{name}", name, headings, rows)
