"""All runs of a folder, from what each run's `summary.json` says.

Runs without a report have no numbers yet, only what is in `meta.json`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from enginebench.analysis.compare.comparison import compare
from enginebench.analysis.compare.engine_runs import engine_runs_of
from enginebench.analysis.compare.headline import headline
from enginebench.analysis.data.load import NotARun
from enginebench.analysis.report.costs import stage_of
from enginebench.analysis.summary.run_summary import RunSummary, read_summary
from enginebench.records.files import META, read_document
from enginebench.records.metrics import columns
from enginebench.records.view import SEVERITIES

NO_REPORT = "no report yet"
COLUMNS = columns("table", since_due=True)


@dataclass(frozen=True, slots=True)
class IndexedRun:
    """One run. `numbers` are those of the table of stages, by the keys of their columns, at the highest load within the
    run's objectives, else at its heaviest; durations in seconds, since the request was due."""

    folder: Path
    run_id: str
    started_at: str
    label: str
    model: str | None
    scenario: str
    stage: str | None = None
    requests: int | None = None  # of the whole run
    numbers: Mapping[str, float | None] = field(default_factory=dict)
    failure_share: float | None = None
    headline: str = NO_REPORT
    findings: Mapping[str, int] | None = None  # how many of each severity

    @property
    def page(self) -> Path | None:
        path = self.folder / "report.html"
        return path if path.exists() else None

    @property
    def findings_text(self) -> str:
        """`1 invalid, 2 warn`; `none` where nothing speaks against the numbers."""
        if self.findings is None:
            return ""
        counts = [f"{self.findings[each]}\u00a0{each}" for each in SEVERITIES if self.findings.get(each)]
        return ", ".join(counts) or "none"


class _Facts(msgspec.Struct):
    """Of `meta.json`, that every version has written."""

    run_id: str
    started_at: str = ""
    label: str = ""
    model: str | None = None
    scenario: str = ""


def runs_in(folder: Path) -> list[IndexedRun]:
    """The newest first. What is in `folder` and is no run is left out."""
    runs = [_indexed(meta.parent) for meta in folder.glob(f"*/{META}")]
    return sorted((run for run in runs if run is not None), key=lambda run: run.started_at, reverse=True)


def _indexed(folder: Path) -> IndexedRun | None:
    """What is in the files, whatever version wrote them; `None` where `meta.json` is none."""
    try:
        meta = read_document(folder / META, _Facts)
    except (OSError, ValueError):
        return None
    known = IndexedRun(folder, meta.run_id, meta.started_at, meta.label, meta.model, meta.scenario)
    try:
        return _with_numbers(known, read_summary(folder))
    except NotARun:
        return known


def _with_numbers(run: IndexedRun, summary: RunSummary) -> IndexedRun:
    comparison, (engine,) = compare([summary]), engine_runs_of([summary])
    findings: dict[str, int] = dict(Counter(finding.severity for finding in summary.findings))
    known = replace(run, requests=summary.requests, headline=headline(comparison, [summary]), findings=findings)
    stage = stage_of(engine, comparison) or (None if summary.search is not None else comparison.stage)
    if stage is None:
        return known
    return replace(
        known,
        stage=stage,
        numbers={column.key: engine.column(stage, column).finite.value for column in COLUMNS},
        failure_share=engine.value(stage, "failure_share"),
    )
