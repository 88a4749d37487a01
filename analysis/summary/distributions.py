"""Percentiles of a stage over the requests that were attempted: failed ones count as +∞, stopped ones are censored.

Without failures an engine would look fast that refuses what it cannot serve quickly. The percentiles of the answered
requests are given beside those of all, under that name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from analysis.data.formulas import lower_bound
from analysis.data.gaps import PooledGaps
from analysis.data.load import users_of
from analysis.stats.estimate import Estimate, Floats, percentile
from analysis.stats.intervals import percentile_intervals
from records.metrics import PERCENTILES, REQUEST_METRICS, Metric

CURVE = (*(k / 100 for k in range(1, 100)), 0.995, 0.999, 1.0)  # where distributions are drawn
DRAWN = ("ttft_user", "tpot", "e2e_user")  # the metrics whose distributions are
NONE = Estimate(None, why="no samples")
FAILED = "failed"  # why a percentile has no finite value


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

    def percentile(self, name: str) -> Estimate:
        """By its name, such as `p95`."""
        estimate: Estimate = getattr(self, name)
        return estimate


EMPTY = Distribution(0, 0, None, None, None, None, NONE, NONE, NONE, NONE)


def distributions(scheduled: pl.DataFrame) -> dict[str, Distribution]:
    """Every metric of records/metrics.py, by name, over requests in the order of `t_sched`."""
    return {metric.name: of_metric(scheduled, metric) for metric in REQUEST_METRICS}


def of_metric(scheduled: pl.DataFrame, metric: Metric) -> Distribution:
    """One metric over requests in the order of `t_sched`."""
    if metric.population == "attempted":
        return _attempted(scheduled, metric)
    rows = scheduled.select("user", "outcome", value=metric.name).drop_nulls("value")
    return _distribution(rows.filter(outcome="ok") if metric.population == "answered" else rows)


def _attempted(scheduled: pl.DataFrame, metric: Metric) -> Distribution:
    """Of the answered requests those that have the metric; a whole answer, for one, has no TTFT."""
    ok = pl.col("outcome") == "ok"
    answered, known = scheduled.select(ok.sum(), known=pl.col(metric.name).filter(ok).count()).row(0)
    if answered and not known:
        return EMPTY
    value, censored = lower_bound(metric.formula)
    stopped = pl.col("outcome") == "cut_off"
    rows = scheduled.select(
        "user",
        value=pl.when(ok).then(metric.name).when(stopped).then(value).otherwise(np.inf),
        censored=stopped & censored,
    )
    return _distribution(rows.drop_nulls("value"))


def _distribution(in_time_order: pl.DataFrame) -> Distribution:
    """From `value`, `user` and, where there may be censored values, `censored`."""
    values = in_time_order["value"].to_numpy()
    if len(values) == 0:
        return EMPTY
    censored = in_time_order["censored"].to_numpy() if "censored" in in_time_order.columns else None
    found = percentile_intervals(values, tuple(PERCENTILES.values()), users_of(in_time_order), censored)
    estimates = [replace(one, why=FAILED) if one.value == math.inf else one for one in found]
    ended = values if censored is None else values[~censored]
    known = np.sort(ended[np.isfinite(ended)])
    failed = len(ended) - len(known)
    answered = {name: percentile(known, q) for name, q in PERCENTILES.items()} if failed and len(known) else None
    return Distribution(len(values), failed, *_moments(known), *_four(estimates), answered)


def _four(estimates: Sequence[Estimate]) -> tuple[Estimate, Estimate, Estimate, Estimate]:
    p50, p90, p95, p99 = estimates
    return p50, p90, p95, p99


def _moments(ordered: Floats) -> tuple[float | None, float | None, float | None, float | None]:
    """Mean, standard deviation, least and largest."""
    if len(ordered) == 0:
        return None, None, None, None
    deviation = float(ordered.std(ddof=1)) if len(ordered) > 1 else None
    return float(ordered.mean()), deviation, float(ordered[0]), float(ordered[-1])


def chunk_gaps(gaps: PooledGaps | None) -> Distribution:
    """Inter-chunk latency, token-weighted: every gap of every answer that ended well counts once."""
    if gaps is None:
        return EMPTY
    # The gaps of one answer are too much alike for an interval that would treat them as independent.
    why = "gaps of one answer are correlated"
    estimates = [Estimate(value, n=gaps.n, why=why) for value in gaps.percentiles]
    return Distribution(gaps.n, 0, gaps.mean, gaps.deviation, gaps.least, gaps.largest, *_four(estimates))


def curves(ok: pl.DataFrame) -> dict[str, tuple[float, ...]]:
    """The percentiles at `CURVE` of each metric in `DRAWN` that the requests have; `ok` are those that ended well."""
    ordered = {name: np.sort(ok[name].drop_nulls().to_numpy()) for name in DRAWN}
    return {name: tuple(percentile(one, q) for q in CURVE) for name, one in ordered.items() if len(one)}
