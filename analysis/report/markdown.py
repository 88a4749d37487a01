"""The report as Markdown: for a pull request, a ticket or a wiki."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from analysis.compare.tables import TextTable
from analysis.report.costs import table
from analysis.report.decision import Decision
from analysis.report.document import Report
from analysis.report.remarks import remarks
from analysis.report.rows import Results, Row, results_of
from analysis.report.search import Searches, searches_of
from analysis.report.terminal import objective_lines
from analysis.stats.intervals import needed
from records.formatting import format_count

NEEDED = needed(0.99)


def markdown(report: Report) -> str:
    """Headline, results by stage, objectives, findings and how to repeat it."""
    results = results_of(report.runs)
    title = " · ".join(dict.fromkeys(run.label for run in report.runs))
    parts = [f"# {title}: load test", f"**{report.comparison.sentence}**", *report.growth, _table(results)]
    parts.append(f"In brackets 95 % intervals; “n/a, 42 < {NEEDED}”: the interval needs {NEEDED} requests.")
    parts += [results.accuracy] if results.accuracy else []
    judged = objective_lines(report.runs)
    parts += [_list([f"**{answer}**: {text}" for answer, text in judged])] if judged else []
    searches = searches_of(report.runs)
    parts += _probes(searches) if searches is not None else []
    parts += _decision(report.decision)
    findings = [*report.comparison.findings, *(finding for run in report.runs for finding in run.findings)]
    found = remarks(findings, (run.label for run in report.runs))
    if found:
        said = [
            f"**{one.severity}**{f' {one.where}:' if one.where else ''} {one.evidence}. → {one.remedy}" for one in found
        ]
        parts += ["## Findings", _list(said)]
    commands = dict.fromkeys(shlex.join(run.command) for run in report.runs)
    parts += ["## To repeat it", "\n".join(["```sh", *commands, "```"])]
    return "\n\n".join(parts) + "\n"


def _decision(decision: Decision) -> list[str]:
    said = [f"**{one.heading}**: {one.said}" for one in decision.for_reading]
    parts = ["## Deployment recommendation", _list(said)]
    if decision.costs is not None:
        told = table(decision.costs)
        parts += ["## Costs", told.markdown, told.caption]
    return parts


def _list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _probes(searches: Searches) -> list[str]:
    said = [
        f"probe {row.number} of {row.engine}, {row.load} {searches.unit}, to {row.purpose}: {row.answer}; {row.reason}"
        for row in searches.rows
    ]
    return ["## Search for capacity", _list(said), searches.error_rate]


def _table(results: Results) -> str:
    heads = [results.axis.title, "engine", "requests", "failed"]
    heads += [f"{name}, {unit}" for name, unit in results.headers]
    return TextTable("", tuple(heads), tuple(map(_cells, results.rows)), (1,), "").markdown


def _cells(row: Row) -> tuple[str, ...]:
    counts = [format_count(row.requests), format_count(row.failed)]
    numbers = [f"{cell.text} {cell.spread}".strip() for cell in row.cells]
    return (row.place.text, row.name, *counts, *numbers)
