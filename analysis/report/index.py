"""All runs of a folder, from what each run's `summary.json` says.

Runs without a report have no numbers yet, only what is in `meta.json`.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis.compare.winner import compare
from analysis.data.load import NotARun
from analysis.summary.run_summary import RunSummary, read_summary

NO_REPORT = "no report yet"


@dataclass(frozen=True, slots=True)
class IndexedRun:
    """One run. Numbers are of its heaviest stage: output tokens per second, and seconds of TTFT (user) at p95."""

    folder: Path
    run_id: str
    started_at: str
    label: str
    model: str | None
    scenario: str
    stage: str | None = None
    requests: int | None = None  # of the whole run
    throughput: float | None = None
    ttft_p95: float | None = None
    failure_share: float | None = None
    headline: str = NO_REPORT
    findings: Mapping[str, int] | None = None  # how many of each severity

    @property
    def page(self) -> Path | None:
        path = self.folder / "report.html"
        return path if path.exists() else None

    @property
    def said(self) -> str:
        """`1 invalid, 2 warn`; `none` where nothing speaks against the numbers."""
        if self.findings is None:
            return ""
        counted = [
            f"{self.findings[severity]}\u00a0{severity}"
            for severity in ("invalid", "warn", "note")
            if self.findings.get(severity)
        ]
        return ", ".join(counted) or "none"


def runs_in(folder: Path) -> list[IndexedRun]:
    """The newest first. What is in `folder` and is no run is left out."""
    found = [_indexed(meta.parent) for meta in folder.glob("*/meta.json")]
    return sorted((run for run in found if run is not None), key=lambda run: run.started_at, reverse=True)


def _indexed(folder: Path) -> IndexedRun | None:
    """What is in the files, whatever version wrote them; `None` where `meta.json` is none."""
    meta = _document(folder / "meta.json")
    if meta is None or "run_id" not in meta:
        return None
    known = IndexedRun(
        folder,
        str(meta["run_id"]),
        str(meta.get("started_at", "")),
        str(meta.get("label", "")),
        meta.get("model"),
        str(meta.get("scenario", "")),
    )
    try:
        return _with_numbers(known, read_summary(folder))
    except NotARun:
        return known


def _with_numbers(run: IndexedRun, summary: RunSummary) -> IndexedRun:
    comparison = compare([summary])
    findings: dict[str, int] = dict(Counter(finding.severity for finding in summary.findings))
    said = replace(run, requests=summary.requests, headline=comparison.sentence, findings=findings)
    stage = next((stage for stage in summary.stages if stage.label == comparison.stage), None)
    if stage is None:  # a capacity search has probes, of which none stands for the run
        return said
    tail = stage.latencies["ttft_user"].p95.value
    return replace(
        said,
        stage=stage.label,
        throughput=stage.throughput.value,
        ttft_p95=None if tail is None or math.isinf(tail) else tail,
        failure_share=stage.failure_share.value,
    )


def _document(path: Path) -> dict[str, Any] | None:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None
