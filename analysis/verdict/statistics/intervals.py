"""Percentiles, shares, rates and means of one steady window, with intervals that allow for correlation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import stats

from analysis.verdict.statistics.dependence import PARTS, Dependence, dependence
from analysis.verdict.statistics.estimate import (
    TAIL,
    Estimate,
    Floats,
    interval_ranks,
    least_samples,
    nearest_rank,
    t_quantile,
)

DEPENDS_ON_CUT_OFF = "depends on cut-off requests"
BINS = 240  # of a window, for rates

Answer = Literal["met", "missed", "not enough evidence"]


def percentile_interval(
    in_time_order: npt.ArrayLike,
    q: float,
    users: npt.ArrayLike | None = None,
    censored: npt.ArrayLike | None = None,
) -> Estimate:
    """Percentile q (nearest rank) of the attempted requests in the order they were scheduled, failed ones as +inf.

    `users` names the user of each request (any integers or strings); without it only correlation along time counts.
    `censored` is true where the value is only a lower bound (a request that was cut off): a percentile that depends on
    such values is withheld (`DEPENDS_ON_CUT_OFF`). The value or an end of the interval may be +inf.
    """
    return percentile_intervals(in_time_order, (q,), users, censored)[0]


def percentile_intervals(
    in_time_order: npt.ArrayLike,
    qs: Sequence[float],
    users: npt.ArrayLike | None = None,
    censored: npt.ArrayLike | None = None,
) -> list[Estimate]:
    """`percentile_interval` of several percentiles, which are cheaper together."""
    values = np.asarray(in_time_order, dtype=np.float64)
    if len(values) == 0:
        return [Estimate(None, why="no samples") for _ in qs]
    largest = values if censored is None else np.where(np.asarray(censored, dtype=bool), np.inf, values)
    lower, upper = np.sort(values), np.sort(largest) if censored is not None else None
    return [_percentile(values, lower, lower if upper is None else upper, q, users) for q in qs]


def _percentile(values: Floats, lower: Floats, upper: Floats, q: float, users: npt.ArrayLike | None) -> Estimate:
    """`lower` and `upper` are the ascending values with censored ones at their bound and at +inf."""
    n, least = len(values), least_samples(q)
    rank = nearest_rank(n, q) - 1
    value = float(lower[rank])
    if value != upper[rank]:
        return Estimate(None, n=n, why=DEPENDS_ON_CUT_OFF)
    if n < least:
        return Estimate(value, n=n, why=f"{n} < {least}")
    effective = _effective(dependence(values <= value, users), q * (1 - q), n)
    if effective < least:
        return Estimate(value, n=n, why=f"≈{int(effective)} < {least}")
    low, high = interval_ranks(int(effective), q)
    scale = n / int(effective)
    low_rank, high_rank = max(1, math.floor(low * scale)) - 1, min(n, math.ceil(high * scale)) - 1
    if lower[high_rank] != upper[high_rank]:
        return Estimate(value, n=n, why=f"interval {DEPENDS_ON_CUT_OFF}")
    return Estimate(value, float(lower[low_rank]), float(lower[high_rank]), n)


def _effective(spread: Dependence | None, variance: float, n: int) -> float:
    """Effective sample size, less what the uncertainty of the variance costs: n* of Korn & Graubard (1998)."""
    if spread is None:
        return float(n)
    if spread.variance <= 0:
        return float(n)
    size = variance / spread.variance * (t_quantile(math.inf) / t_quantile(spread.freedom)) ** 2
    return min(float(n), size)


def share_interval(hits_in_time_order: npt.ArrayLike, users: npt.ArrayLike | None = None) -> Estimate:
    """The share of true values in a series of booleans in time order: failures, or requests that met an SLO.

    Clopper & Pearson's interval on the effective sample size (Korn & Graubard 1998).
    """
    hits = np.asarray(hits_in_time_order, dtype=np.float64)
    n = len(hits)
    if n == 0:
        return Estimate(None, why="no samples")
    share = float(hits.mean())
    effective = _effective(dependence(hits, users), share * (1 - share), n) if 0 < share < 1 else float(n)
    low = float(stats.beta.ppf(TAIL, share * effective, (1 - share) * effective + 1)) if share > 0 else 0.0
    high = float(stats.beta.ppf(1 - TAIL, share * effective + 1, (1 - share) * effective)) if share < 1 else 1.0
    return Estimate(share, low, high, n)


def objective_answer(share: Estimate, q: float) -> Answer:
    """Do at least a share q of the requests keep the limit? By the interval of the share of those that did."""
    if share.low is not None and share.low >= q:
        return "met"
    if share.high is not None and share.high < q:
        return "missed"
    return "not enough evidence"


def mean_interval(in_time_order: npt.ArrayLike, users: npt.ArrayLike | None = None) -> Estimate:
    """The mean of a series in time order (at least 24 values), with a t interval that allows for correlation."""
    values = np.asarray(in_time_order, dtype=np.float64)
    n = len(values)
    if n == 0:
        return Estimate(None, why="no samples")
    mean, spread = float(values.mean()), dependence(values, users)
    if spread is None:
        return Estimate(mean, n=n, why=f"{n} < 24")
    half = t_quantile(spread.freedom) * math.sqrt(spread.variance)
    return Estimate(mean, mean - half, mean + half, n)


def bin_events(
    times: npt.ArrayLike, start: float, end: float, amounts: npt.ArrayLike | None = None, bins: int = BINS
) -> Floats:
    """Amounts (or numbers) of events in equal parts of [start, end), as `rate_interval` takes them."""
    stamps = np.asarray(times, dtype=np.float64)
    weights = None if amounts is None else np.asarray(amounts, dtype=np.float64)
    return np.histogram(stamps, bins, (start, end), weights=weights)[0].astype(np.float64)


def bin_by_user(
    times: npt.ArrayLike, users: npt.ArrayLike, start: float, end: float, amounts: npt.ArrayLike | None = None
) -> Floats:
    """Amounts of each user (rows) in `PARTS` equal parts of [start, end), as `rate_interval` takes them.

    One event a request will do: its tokens at the instant at which it ended.
    """
    stamps = np.asarray(times, dtype=np.float64)
    weights = np.ones(len(stamps)) if amounts is None else np.asarray(amounts, dtype=np.float64)
    names, codes = np.unique(np.asarray(users), return_inverse=True)
    parts = np.floor((stamps - start) / (end - start) * PARTS).astype(np.intp)
    inside = (parts >= 0) & (parts < PARTS)
    cells = codes[inside] * PARTS + parts[inside]
    sums = np.bincount(cells, weights[inside], minlength=len(names) * PARTS)
    return sums.astype(np.float64).reshape(len(names), PARTS)


def rate_interval(amounts: npt.ArrayLike, seconds: float, by_user: npt.ArrayLike | None = None) -> Estimate:
    """Amount per second over a window of `seconds`: throughput in tokens/s, goodput or requests in 1/s.

    `amounts` arrived in successive equal parts of the window, best `BINS` of them (`bin_events` makes them of events).
    `by_user` (`bin_by_user`) adds the variance between users. `n` is the number of parts.
    """
    parts = np.asarray(amounts, dtype=np.float64)
    mean = mean_interval(parts)
    scale = len(parts) / seconds
    if mean.value is None or mean.low is None or mean.high is None:
        return Estimate(None if mean.value is None else mean.value * scale, n=mean.n, why=mean.why)
    return Estimate(mean.value * scale, max(0.0, mean.low * scale), mean.high * scale, mean.n)
