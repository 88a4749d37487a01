"""Percentiles over the requests of all repeats of an engine at one load, as its verdict counts them.

All values of a run are kept or, if there are many, order statistics at ranks that are closer together towards the slow
end. Every limit of the SLO separates two kept ranks, so a percentile is within its limit if and only if the objective
is met. Otherwise the rank of a percentile is exact to 0.1 %, and in the tail to 1/256 of the values beyond it.

The runs are clusters. Three or more runs give Student's t interval of the logarithm. Its standard error is that of the
runs' own percentiles or, if larger, that of the jackknife over the runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from enginebench.analysis.arrays import Floats, Integers
from enginebench.analysis.stats.intervals import NEGLIGIBLE, min_requests
from enginebench.analysis.stats.repeats import MIN_REPEATS, ROUNDING, within_run_error
from enginebench.analysis.stats.student_t import t_quantile
from enginebench.records.metrics import PERCENTILES
from enginebench.records.quality import MAX_EXPONENT
from enginebench.records.rules import nearest_rank
from enginebench.records.view import NO_SAMPLES, Distribution, Estimate, Missing, Ordered

MAX_EXACT = 2048  # values that are kept one by one
BODY_RANKS = 768  # ranks kept of the fastest three quarters
TAIL_RANKS = 256  # the slowest, all kept; the others are spaced by at most 1/256 of their distance from the end


def packed(ascending: Floats, limits: Sequence[float] = ()) -> Ordered:
    """Pack values in ascending order, with the ranks at which the `limits` separate them."""
    n = len(ascending)
    if n <= MAX_EXACT:
        return Ordered(ascending.astype("<f8").tobytes())
    ranks = np.union1d(_kept_ranks(n), np.searchsorted(ascending, limits, side="right"))
    ranks = ranks[ranks > 0]
    weights = np.diff(ranks, prepend=0)
    return Ordered(ascending[ranks - 1].astype("<f8").tobytes(), weights.astype("<u4").tobytes())


@lru_cache(maxsize=8)  # most metrics of a stage have the same number of values
def _kept_ranks(n: int) -> Integers:
    tail = np.geomspace(TAIL_RANKS, n / 4, math.ceil(TAIL_RANKS * math.log(n / 4 / TAIL_RANKS)) + 1)
    from_the_end = np.concatenate([np.arange(TAIL_RANKS), tail, np.linspace(n / 4, n - 1, BODY_RANKS)])
    return np.unique(n - np.round(from_the_end).astype(np.int64))


@dataclass(frozen=True, slots=True)
class _Values:
    """Values in ascending order, each with the number of requests that do not exceed it."""

    values: Floats
    up_to: Integers

    @property
    def n(self) -> int:
        return int(self.up_to[-1])

    def percentile(self, q: float) -> float:
        return float(self.values[np.searchsorted(self.up_to, nearest_rank(self.n, q))])


def pooled_percentile(runs: Sequence[Distribution], name: str) -> Estimate:
    """Return the percentile of one run or, for several, of all their attempted requests together, with failed ones as
    +∞. The estimate has no value if any run has none. `name` is a percentile such as `p95`."""
    if len(runs) == 1:
        return runs[0].percentile(name)
    n, q = sum(run.n for run in runs), PERCENTILES[name]
    if any(run.n == 0 or run.ended is None for run in runs) or not runs:
        return replace(NO_SAMPLES, n=n)
    value = _attempted(runs).percentile(q)
    if value > _attempted(runs, cut_off_ended=True).percentile(q) * (1 + NEGLIGIBLE):
        return Estimate(None, n=n, missing=Missing.CUT_OFF)
    if value == math.inf:
        return Estimate(value, n=n, missing=Missing.FAILED)
    if len(runs) < MIN_REPEATS:
        return Estimate(value, n=n, missing=Missing.FEW_REPEATS)
    # With too few requests, a run's own percentile would be its largest value.
    if n < min_requests(q) or round(min(run.n for run in runs) * (1 - q), 9) < 1:
        return Estimate(value, n=n, missing=Missing.FEW_REQUESTS)
    half = _half_width(runs, name, value)
    if half is None:
        return Estimate(value, n=n, missing=Missing.FEW_REPEATS)
    return Estimate(value, value * math.exp(-half), value * math.exp(half), n)


def pooled_answered(runs: Sequence[Distribution], name: str) -> float | None:
    """Return the percentile of the answered requests; `None` if no request failed."""
    if len(runs) == 1:
        return (runs[0].answered or {}).get(name)
    ended = _together([run.ended for run in runs])
    return ended.percentile(PERCENTILES[name]) if len(ended.values) and any(run.failed for run in runs) else None


def _half_width(runs: Sequence[Distribution], name: str, value: float) -> float | None:
    """Return half the width of the logarithm's interval; `None` if a run lacks the percentile or all runs are equal."""
    k, own = len(runs), [run.percentile(name) for run in runs]
    without_one = [_attempted([*runs[:i], *runs[i + 1 :]]).percentile(PERCENTILES[name]) for i in range(k)]
    values = np.array([[estimate.value or 0.0 for estimate in own], without_one])
    if values.min() <= 0 or values.max() == math.inf:
        return None
    spread = np.log(values).std(axis=1)
    error = max(spread[0] / math.sqrt(k - 1), spread[1] * math.sqrt(k - 1))
    half = max(t_quantile(k - 1) * error, t_quantile(math.inf) * within_run_error(own) / value)
    return min(half, MAX_EXPONENT) if half > ROUNDING else None


def _attempted(runs: Sequence[Distribution], cut_off_ended: bool = False) -> _Values:
    """Pool all runs. Failed requests are +∞, and so are cut-off ones, unless `cut_off_ended` counts them as ended when
    they were cut off."""
    parts = [run.ended for run in runs] + [run.cut_off for run in runs if cut_off_ended]
    return _together(parts, sum(run.n for run in runs))


def _together(parts: Sequence[Ordered | None], n: int = 0) -> _Values:
    """Merge the values of all parts, filled up to `n` with +∞."""
    packs = [part for part in parts if part is not None]
    values = [np.frombuffer(pack.values, "<f8") for pack in packs]
    weights = [np.frombuffer(pack.weights, "<u4") if pack.weights else np.ones(len(pack.values) // 8) for pack in packs]
    infinite = max(n - int(sum(weight.sum() for weight in weights)), 0)
    ascending = np.concatenate([*values, [math.inf] * (infinite > 0)])
    order = np.argsort(ascending, kind="stable")
    up_to = np.cumsum(np.concatenate([*weights, [infinite] * (infinite > 0)])[order])
    return _Values(ascending[order], up_to.astype(np.int64))
