"""Every number of a report as one long table: a row for each run, stage, metric and statistic.

Durations are in seconds. `low` and `high` are the ends of the 95 % interval; `why` says why a value or an interval is
missing. A percentile that falls among failed requests has no value and the `why` "failed".
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from analysis.report.rows import names_of
from analysis.stats.estimate import Estimate
from analysis.summary.distributions import Distribution
from analysis.summary.run_summary import RunSummary
from analysis.summary.stage import StageSummary
from records.metrics import BY_NAME, PERCENTILES, QUANTITIES

SCHEMA = pl.Schema(
    {
        **dict.fromkeys(("run", "label", "engine", "model", "scenario", "stage"), pl.String()),
        "repeat": pl.Int64(),
        "load": pl.Float64(),
        **dict.fromkeys(("load_unit", "metric", "statistic", "unit"), pl.String()),
        **dict.fromkeys(("value", "low", "high"), pl.Float64()),
        "n": pl.Int64(),
        "why": pl.String(),
        "effective": pl.Float64(),
    }
)
UNITS = {name: metric.unit for name, metric in BY_NAME.items()} | {"icl": "s"}
UNITS |= {quantity.name: quantity.unit for quantity in QUANTITIES}
COUNTS = ("requests", "ok", "failed", "cut_off", "reconnected")
ANSWERS = ("prompt_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")


def numbers_of(summaries: Sequence[RunSummary]) -> pl.DataFrame:
    """In the order of runs, stages and metrics, without what was not observed."""
    rows: list[dict[str, Any]] = []
    for name, summary in zip(names_of(summaries), summaries, strict=True):
        run = {
            "run": summary.run_id,
            "label": name,
            "engine": str((summary.engine or {}).get("name", "")) or None,
            "model": summary.model,
            "scenario": summary.scenario,
            "repeat": summary.repeat,
        }
        for stage in summary.stages:
            place = run | {"stage": stage.label, "load": stage.load, "load_unit": stage.load_unit}
            for metric, statistic, estimate in (*_of_the_stage(stage), *_latencies(stage)):
                row = place | {"metric": metric, "statistic": statistic, "unit": UNITS.get(metric)}
                if estimate.value is not None or estimate.why:
                    rows.append(row | dataclasses.asdict(_finite(estimate)))
    return pl.DataFrame(rows, schema=SCHEMA)


def _finite(estimate: Estimate) -> Estimate:
    value, high = (None if one is None or math.isinf(one) else one for one in (estimate.value, estimate.high))
    return dataclasses.replace(estimate, value=value, high=high)


def _of_the_stage(stage: StageSummary) -> Iterator[tuple[str, str, Estimate]]:
    n = stage.requests
    for name in COUNTS:
        yield name, "count", Estimate(float(getattr(stage, name)), n=n)
    yield "failure_share", "share", stage.failure_share
    yield "throughput", "rate", stage.throughput
    for name in ("offered_rate", "achieved_rate", "user_throughput", "energy_per_token"):
        yield name, "mean", Estimate(getattr(stage, name), n=n)
    yield "concurrency", "mean", Estimate(stage.concurrency.average, n=n)
    if stage.attainment is not None:
        yield "attainment", "share", stage.attainment.share
        yield "goodput", "rate", stage.attainment.goodput
    if stage.ttft_parts is not None:
        for name, length in stage.ttft_parts.lengths.items():
            yield f"ttft_{name}", "mean", Estimate(length, n=stage.ttft_parts.n)
    for name in ANSWERS:
        yield name, "mean", Estimate(getattr(stage.answers, name), n=stage.ok)
    for name, level in stage.telemetry.items():
        yield name, "mean", Estimate(level.mean)
        yield name, "peak", Estimate(level.peak)


def _latencies(stage: StageSummary) -> Iterator[tuple[str, str, Estimate]]:
    for name, found in stage.latencies.items():
        if found.n:
            yield from ((name, statistic, one) for statistic, one in _statistics(found))


def _statistics(found: Distribution) -> Iterator[tuple[str, Estimate]]:
    answered = found.n - found.failed
    for name in ("mean", "deviation", "least", "largest"):
        yield name, Estimate(getattr(found, name), n=answered)
    for p in PERCENTILES:
        yield p, found.percentile(p)
    for p, value in (found.answered or {}).items():
        yield f"{p} of the answered", Estimate(value, n=answered)
