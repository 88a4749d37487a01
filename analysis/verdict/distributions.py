"""Percentiles of a stage over the requests that were attempted: a failed one waited for ever, a stopped one is censored.

Leaving failures out would make an engine look fast that refuses what it cannot serve quickly. So a failed request counts
as +∞, and the percentiles of the answered ones stand beside them under that name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from analysis.run.flow import chunk_gaps
from analysis.run.formulas import lower_bound
from analysis.verdict.statistics import Estimate, Floats, nearest_rank, percentile, percentile_interval
from records.metrics import REQUEST_METRICS, Metric
from records.stage import SECOND

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
CURVE = (*(k / 100 for k in range(1, 100)), 0.995, 1.0)  # where the distribution of TTFT is drawn
NONE = Estimate(None, why="no samples")


@dataclass(frozen=True, slots=True)
class Distribution:
    """One metric over `n` requests. `p50` … `p99` are nearest-rank percentiles with their intervals.

    Mean, standard deviation, extremes and `answered` (percentiles) are of the requests that ended well; `answered` is
    given where others did not.
    """

    n: int
    failed: int  # of them
    mean: float | None
    deviation: float | None
    least: float | None
    largest: float | None
    p50: Estimate
    p90: Estimate
    p95: Estimate
    p99: Estimate
    answered: Mapping[str, float] | None = None


EMPTY = Distribution(0, 0, None, None, None, None, NONE, NONE, NONE, NONE)


def distributions(scheduled: pl.DataFrame) -> dict[str, Distribution]:
    """Every metric of records/metrics.py, by name, over requests in the order of `t_sched`."""
    ok = scheduled.filter(pl.col("outcome") == "ok")
    found = {}
    for metric in REQUEST_METRICS:
        if metric.population == "attempted":
            found[metric.name] = _attempted(scheduled, ok, metric)
        else:
            rows = ok if metric.population == "answered" else scheduled
            rows = rows.filter(pl.col(metric.name).is_not_null())
            found[metric.name] = _distribution(rows[metric.name].to_numpy(), rows["user"])
    return found


def _attempted(scheduled: pl.DataFrame, ok: pl.DataFrame, metric: Metric) -> Distribution:
    """Of the answered requests those that have the metric; a whole answer, for one, has no TTFT."""
    known = ok[metric.name].drop_nulls().to_numpy()
    if len(ok) and not len(known):
        return EMPTY
    value, censored = lower_bound(metric.formula)
    stopped = pl.col("outcome") == "cut_off"
    rows = scheduled.select(
        pl.when(pl.col("outcome") == "ok").then(metric.name).when(stopped).then(value).otherwise(np.inf).alias("value"),
        (stopped & censored).alias("censored"),
        "user",
    ).filter(pl.col("value").is_not_null())
    return _distribution(rows["value"].to_numpy(), rows["user"], rows["censored"].to_numpy())


def _distribution(
    in_time_order: Floats, users: pl.Series, censored: npt.NDArray[np.bool_] | None = None
) -> Distribution:
    if len(in_time_order) == 0:
        return EMPTY
    estimates = {name: percentile_interval(in_time_order, q) for name, q in PERCENTILES.items()}
    ended = in_time_order if censored is None else in_time_order[~censored]
    known = np.sort(ended[np.isfinite(ended)])
    failed = len(ended) - len(known)
    answered = {name: percentile(known, q) for name, q in PERCENTILES.items()} if failed and len(known) else None
    return Distribution(len(in_time_order), failed, *_moments(known), **estimates, answered=answered)


def _moments(ordered: Floats) -> tuple[float | None, float | None, float | None, float | None]:
    """Mean, standard deviation, least and largest."""
    if len(ordered) == 0:
        return None, None, None, None
    deviation = float(ordered.std(ddof=1)) if len(ordered) > 1 else None
    return float(ordered.mean()), deviation, float(ordered[0]), float(ordered[-1])


def pooled_gaps(table: Path, start: int, end: int) -> Distribution:
    """Inter-chunk latency, token-weighted: every gap of every answer counts once."""
    gaps = chunk_gaps(table, start, end)
    n = len(gaps)
    if n == 0:
        return EMPTY
    ranks = {name: nearest_rank(n, q) - 1 for name, q in PERCENTILES.items()}
    gaps.partition(list(ranks.values()))
    # The gaps of one answer are too much alike for an interval that would treat them as independent.
    why = "gaps of one answer are correlated"
    estimates = {name: Estimate(float(gaps[rank]) / SECOND, n=n, why=why) for name, rank in ranks.items()}
    deviation = float(gaps.std(ddof=1)) / SECOND if n > 1 else None
    moments = (float(gaps.mean()) / SECOND, deviation, float(gaps.min()) / SECOND, float(gaps.max()) / SECOND)
    return Distribution(n, 0, *moments, **estimates)


def curve(values: pl.Series) -> tuple[float, ...]:
    """The percentiles at `CURVE`; empty where there are no values."""
    ordered = np.sort(values.drop_nulls().to_numpy())
    return tuple(percentile(ordered, q) for q in CURVE) if len(ordered) else ()
