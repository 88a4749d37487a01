"""Percentiles of a stage over the attempted requests: failed ones count as +∞, stopped ones are censored.

If failures did not count, an engine that refuses slow requests would look fast. Percentiles of the answered requests
are kept as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from enginebench.analysis.arrays import Floats
from enginebench.analysis.data.formulas import expression
from enginebench.analysis.data.run_data import users_of
from enginebench.analysis.stats.intervals import percentile_intervals
from enginebench.analysis.stats.pooled_percentile import packed
from enginebench.records.metrics import PERCENTILES, REQUEST_METRICS, Metric, over_runs
from enginebench.records.rules import attempted, censored, percentile
from enginebench.records.slo import Objective
from enginebench.records.view import EMPTY, Distribution, Estimate, Missing

CURVE = (*(k / 100 for k in range(1, 100)), 0.995, 0.999, 1.0)  # quantiles of a drawn distribution
KEPT = over_runs()


def distributions(scheduled: pl.DataFrame, objectives: Sequence[Objective] = ()) -> dict[str, Distribution]:
    """Describe every metric of enginebench/records/metrics.py, by name, over requests in the order of `t_sched`. Ranks
    are exact at the limits of the objectives."""
    limits = {metric.name: [o.limit for o in objectives if o.judged is metric] for metric in REQUEST_METRICS}
    return {metric.name: distribution_of(scheduled, metric, limits[metric.name]) for metric in REQUEST_METRICS}


def distribution_of(scheduled: pl.DataFrame, metric: Metric, limits: Sequence[float] = ()) -> Distribution:
    """Describe one metric over requests in the order of `t_sched`."""
    if metric.population == "attempted":
        return _over_attempted(scheduled, metric, limits)
    rows = scheduled.select("user", "outcome", value=metric.name).drop_nulls("value")
    rows = rows.filter(outcome="ok") if metric.population == "answered" else rows
    return _distribution(rows, limits if limits or metric.name in KEPT else None)


def _over_attempted(scheduled: pl.DataFrame, metric: Metric, limits: Sequence[float]) -> Distribution:
    """Count attempted requests, except answered ones that lack the metric: an unstreamed answer has no TTFT."""
    ok = pl.col("outcome") == "ok"
    answered, observed = scheduled.select(ok.sum(), observed=pl.col(metric.name).filter(ok).count()).row(0)
    if answered and not observed:
        return EMPTY
    rows = scheduled.select(
        "user",
        value=expression(attempted(metric.formula)),
        censored=expression(censored(metric.formula)) == 1,
    )
    return _distribution(rows.drop_nulls("value"), limits if limits or metric.name in KEPT else None)


def _distribution(in_time_order: pl.DataFrame, limits: Sequence[float] | None) -> Distribution:
    """Describe the columns `value`, `user` and, if values may be censored, `censored`. The values are kept unless
    `limits` is `None`."""
    values = in_time_order["value"].to_numpy()
    if len(values) == 0:
        return EMPTY
    is_bound = in_time_order["censored"].to_numpy() if "censored" in in_time_order.columns else None
    estimates = percentile_intervals(values, tuple(PERCENTILES.values()), users_of(in_time_order), is_bound)
    ended = values if is_bound is None else values[~is_bound]
    finite = np.sort(ended[np.isfinite(ended)])
    failed = len(ended) - len(finite)
    answered = {name: percentile(finite, q) for name, q in PERCENTILES.items()} if failed and len(finite) else None
    kept = None if limits is None else packed(finite, limits)
    bounds = None if limits is None or is_bound is None or not is_bound.any() else packed(np.sort(values[is_bound]))
    return Distribution(len(values), failed, *_moments(finite), _named(estimates), answered, kept, bounds)


def _named(estimates: Sequence[Estimate]) -> dict[str, Estimate]:
    return {
        name: replace(estimate, missing=Missing.FAILED) if estimate.value == math.inf else estimate
        for name, estimate in zip(PERCENTILES, estimates, strict=True)
    }


def _moments(ascending: Floats) -> tuple[float | None, float | None, float | None, float | None]:
    """Return mean, standard deviation, least and largest value."""
    if len(ascending) == 0:
        return None, None, None, None
    deviation = float(ascending.std(ddof=1)) if len(ascending) > 1 else None
    return float(ascending.mean()), deviation, float(ascending[0]), float(ascending[-1])


def curves(ok: pl.DataFrame) -> dict[str, tuple[float, ...]]:
    """Return the percentiles at `CURVE` of each metric whose distribution is drawn; `ok` are successful requests."""
    drawn = [metric.name for metric in REQUEST_METRICS if metric.shown.curve]
    ascending = {name: np.sort(ok[name].drop_nulls().to_numpy()) for name in drawn}
    return {name: tuple(percentile(values, q) for q in CURVE) for name, values in ascending.items() if len(values)}
