"""The long tables of a page: every number of every stage, and the settings of every run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from enginebench.analysis.compare.tables import estimate_text
from enginebench.analysis.console import TextTable
from enginebench.analysis.report.table import names_of
from enginebench.analysis.summary.frame import rows_of
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.formatting import MISSING, format_bytes, format_value
from enginebench.records.metrics import ICL, PERCENTILES, QUANTITIES, REQUEST_METRICS
from enginebench.records.telemetry import GAUGES
from enginebench.records.view import Estimate

TITLES = {metric.name: metric.title for metric in (*REQUEST_METRICS, ICL)}
TITLES |= {quantity.name: quantity.title for quantity in QUANTITIES} | {name: of.title for name, of in GAUGES.items()}


def details_of(summaries: Sequence[RunSummary]) -> list[TextTable]:
    """A table for each run: every number of `enginebench/analysis/summary/frame.py`, with a column for each stage."""
    return [_details(name, summary) for name, summary in zip(names_of(summaries), summaries, strict=True)]


def _details(name: str, summary: RunSummary) -> TextTable:
    stages = [
        {(metric, statistic): (unit, estimate) for metric, statistic, unit, estimate in rows_of(stage)}
        for stage in summary.stages
    ]
    rows = []
    for key in dict.fromkeys(key for stage in stages for key in stage):
        numbers = [stage.get(key, (None, Estimate(None))) for stage in stages]
        if any(estimate.value for _, estimate in numbers) or (
            key[1] != "count" and any(estimate.value is not None for _, estimate in numbers)
        ):
            rows.append((_title(*key), *(_text(estimate, unit or "") for unit, estimate in numbers)))
    window = ("window", *(format_value(stage.seconds, "s") for stage in summary.stages))
    return TextTable(name, (name, *(stage.label for stage in summary.stages)), (window, *rows), (0,), "")


def _title(metric: str, statistic: str) -> str:
    """`TTFT p95`; the words of a gauge, a count or an objective are their own."""
    name, of, group = metric.partition(" of ")
    title = TITLES.get(name, name if name.startswith("slo ") else name.replace("_", " "))
    words = {"value": "", "count": ""} | {p: f" {p}" for p in PERCENTILES}
    return f"{title}{of}{group}{words.get(statistic, f', {statistic}')}"


def _text(estimate: Estimate, unit: str) -> str:
    """`12.3 ms [11.0, 14.0]`, `379 [371, 387] tokens/s`"""
    text = estimate_text(estimate, unit)
    return text if unit in {"", "s", "B", "share"} or estimate.value is None else f"{text} {unit}"


Section = tuple[str, list[tuple[str, list[str], bool]]]


def setup_of(summaries: Sequence[RunSummary]) -> list[Section]:
    """Sections of (setting, one value per run, whether they differ)."""
    sources: tuple[tuple[str, Callable[[RunSummary], Mapping[str, Any]]], ...] = (
        ("Engine", lambda run: run.engine or {}),
        ("Workload", lambda run: {"scenario": run.scenario} | dict(run.workload)),
        ("Load generator", lambda run: run.host),
        (
            "Versions",
            lambda run: (
                dict(run.versions) | {"commit": run.commit, "url": run.url, "run": run.run_id, "workers": run.workers}
            ),
        ),
    )
    sections = []
    for title, of in sources:
        settings = [of(summary) for summary in summaries]
        rows = []
        for key in dict.fromkeys(key for of_run in settings for key in of_run):
            values = [_plain(key, of_run.get(key)) for of_run in settings]
            rows.append((key.replace("_", " "), values, len(set(values)) > 1))
        if rows:
            sections.append((title, rows))
    return sections


def _plain(key: str, value: Any) -> str:
    """A setting as a person would write it."""
    if value is None or value in ([], {}, ""):
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if key == "memory" and isinstance(value, int):
        return format_bytes(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(name, part)}" for name, part in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_plain(key, part) for part in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
