"""The tidy frame: every number of every stage of several runs, a row each.

Durations are in seconds. `low` and `high` are the ends of the 95 % interval; `why` says why a value or an interval is
missing. A percentile that falls among failed requests has no value and the `why` "failed". The findings are rows too:
the metric `finding`, the kind as the statistic, and the sentence as `why`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.metrics import BY_NAME, ICL, QUANTITY_BY_NAME
from enginebench.records.telemetry import GAUGES
from enginebench.records.view import Distribution, Estimate, Finding, StageView

Row = tuple[str, str, str | None, Estimate]  # metric, statistic, unit, estimate
FINDING = "finding"

SCHEMA = pl.Schema(
    {
        **dict.fromkeys(("run", "label", "engine", "model", "scenario", "stage"), pl.String()),
        "repeat": pl.Int64(),
        "load": pl.Float64(),
        **dict.fromkeys(("load_unit", "metric", "statistic", "unit"), pl.String()),
        **dict.fromkeys(("value", "low", "high"), pl.Float64()),
        "n": pl.Int64(),
        "why": pl.String(),
    }
)


def frame(summaries: Sequence[RunSummary]) -> pl.DataFrame:
    """In the order of runs, stages and metrics, without what was not observed."""
    rows: list[dict[str, Any]] = []
    for summary in summaries:
        run = {
            "run": summary.run_id,
            "label": summary.label,
            "engine": str((summary.engine or {}).get("name", "")) or None,
            "model": summary.model,
            "scenario": summary.scenario,
            "repeat": summary.repeat,
        }
        for stage in summary.stages:
            place = run | {"stage": stage.label, "load": stage.load, "load_unit": stage.load_unit}
            rows += [place | _cells(row) for row in rows_of(stage)]
        rows += [run | finding_row(finding) for finding in summary.findings]
    return pl.DataFrame(rows, schema=SCHEMA)


def finding_row(finding: Finding) -> dict[str, Any]:
    where = {} if finding.stage is None else {"stage": finding.stage.label}
    sentence = f"{finding.severity}: {finding.evidence}; {finding.remedy}"
    return where | {"metric": FINDING, "statistic": finding.kind, "why": sentence}


def _cells(row: Row) -> dict[str, Any]:
    metric, statistic, unit, estimate = row
    known = estimate.finite
    ends = {
        "value": known.value,
        "low": known.low,
        "high": known.high,
        "n": known.n,
        "why": known.missing and known.missing.value,
    }
    return {"metric": metric, "statistic": statistic, "unit": unit} | ends


def rows_of(stage: StageView) -> Iterator[Row]:
    """Every number of one stage."""
    for outcome, count in stage.outcomes.items():
        yield outcome, "count", "requests", Estimate(float(count), n=stage.requests)
    for name, count in stage.counts.items():
        yield name, "count", None, Estimate(float(count), n=stage.requests)
    for name, estimate in stage.quantities.items():
        if estimate.value is not None or estimate.missing:
            yield name, "value", QUANTITY_BY_NAME[name].unit, estimate
    for judgement in stage.judgements:
        yield f"slo {judgement.objective}", judgement.answer, "share", judgement.share
    for name, distribution in stage.metrics.items():
        unit = ICL.unit if name == ICL.name else BY_NAME[name].unit
        for statistic, estimate in _statistics(distribution):
            yield name, statistic, unit, estimate
    for name, level in stage.gauges.items():
        of_gauge = GAUGES[name].unit if name in GAUGES else None
        yield name, "mean", of_gauge, Estimate(level.mean)
        yield name, "peak", of_gauge, Estimate(level.peak)
    for view in stage.classes:
        for name, distribution in view.metrics.items():
            for statistic, estimate in _statistics(distribution):
                yield f"{name} of {view.name}", statistic, BY_NAME[name].unit, estimate


def _statistics(distribution: Distribution) -> Iterator[tuple[str, Estimate]]:
    if not distribution.n:
        return
    answered = distribution.n - distribution.failed
    for name in ("mean", "deviation", "least", "largest"):
        if (value := getattr(distribution, name)) is not None:
            yield name, Estimate(value, n=answered)
    yield from distribution.percentiles.items()
    for p, value in (distribution.answered or {}).items():
        yield f"{p} of the answered", Estimate(value, n=answered)
