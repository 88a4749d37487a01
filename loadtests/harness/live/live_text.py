"""The text of a live view: a column for each statistic that is shown live, and the findings."""

from __future__ import annotations

from math import inf

from enginebench.records.formatting import format_seconds, format_share, significant
from enginebench.records.metrics import Column, Quantity, columns
from enginebench.records.rules import as_measured
from enginebench.records.stage import Stage
from enginebench.records.view import Missing, StageView


def phase_of(stage: Stage) -> str:
    """Return the phase of a stage, whose numbers cover only its window."""
    if stage.end is not None:
        return "over"
    if stage.steady_start is None:
        return "warming up"
    return "measuring" if stage.steady_end is None else "waiting for answers"


def cell(view: StageView | None, column: Column) -> str:
    """Return the value with its unit; empty until something was observed."""
    estimate = None if view is None else view.estimate(column.name, column.statistic)
    value = None if estimate is None else inf if estimate.missing is Missing.FAILED else estimate.value
    if value is None:
        return ""
    if column.unit == "s":
        return format_seconds(value)
    if column.unit == "share":
        return format_share(value)
    return f"{significant(value)} {column.unit}".rstrip()


def slo_text(view: StageView) -> str:
    """Return whether the SLO is met as measured; empty without one."""
    verdicts = [
        as_measured(
            round((judgement.share.value or 0.0) * judgement.share.n),
            judgement.unknown,
            judgement.share.n + judgement.unknown,
            judgement.objective.q,
        )
        for judgement in view.judgements
    ]
    if not verdicts:
        return ""
    return "missed" if False in verdicts else "not measured" if None in verdicts else "met"


def parts_of(view: StageView) -> list[str]:
    """Return a text for each metric and quantity, such as `TTFT p50 20.0 ms p99 31.0 ms`."""
    parts: dict[str, list[str]] = {}
    for column in columns("live"):
        if text := cell(view, column):
            title = column.title.removesuffix(f" {column.statistic}")
            of_quantity = isinstance(column.measure, Quantity)
            parts.setdefault(title, []).append(text if of_quantity else f"{column.statistic} {text}")
    return [" ".join((title, *texts)) for title, texts in parts.items()]


def findings_text(view: StageView | None, severities: tuple[str, ...] = ("invalid", "warn", "note")) -> str:
    """Return the evidence of the most severe of these findings, and the number of further ones; empty without any."""
    findings = [finding for finding in view.findings if finding.severity in severities] if view is not None else []
    if not findings:
        return ""
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    return f"{findings[0].severity}: {findings[0].evidence}{more}"
