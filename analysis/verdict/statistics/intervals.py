"""Percentiles, shares, rates and means of one steady window, with intervals that allow for correlation.

They speak of the long run of the system that was measured, with its users assigned to its replicas at random, and not
of what changes from one run to the next: for that, see repeats.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import special

from analysis.verdict.statistics.dependence import (
    COSINES,
    LEAST_POINTS,
    PARTS,
    Codes,
    MeanError,
    cycle_length,
    mean_error,
    skewed_quantile,
    sums_by_cell,
    user_codes,
    with_users,
)
from analysis.verdict.statistics.estimate import TAIL, Estimate, Floats, nearest_rank, t_quantile
from analysis.verdict.statistics.tails import TAIL_SHARE, bulk_of, effective_size, error_below, needed, of_a_tail

DEPENDS_ON_CUT_OFF = "depends on cut-off requests"
IN_CYCLES = "requests repeat in cycles"
NEGLIGIBLE = 0.01  # share by which cut-off requests may move a percentile that is still given
BINS = 240  # of a window, for rates
LEAST_BINS = 10  # with arrivals
LEAST_COSINES = 4
COSINES_PER_CYCLE = 1.2  # a cosine of index j has j/2 periods in the window: stay well below the cycle's own two
LEAST_RARE = 10  # hits or misses, to look for cycles among them
LEAST_EFFECTIVE = 8  # hits or misses, where they are correlated

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
    such values by more than `NEGLIGIBLE` is withheld (`DEPENDS_ON_CUT_OFF`). The value or the upper end of the interval
    may be +inf.

    The interval inverts that of the distribution function (Woodruff 1952) on the effective sample size, reduced for
    the uncertainty of the variance (Korn & Graubard 1998).
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
    lower = np.sort(values)
    upper = lower if censored is None else np.sort(np.where(np.asarray(censored, dtype=bool), np.inf, values))
    codes, cyclic = user_codes(users), cycle_length(values) is not None
    found = []
    for q in qs:
        rank = nearest_rank(len(values), q) - 1
        if upper[rank] > lower[rank] * (1 + NEGLIGIBLE):
            found.append(Estimate(None, n=len(values), why=DEPENDS_ON_CUT_OFF))
            continue
        found.append(_with_interval(values, lower, upper, q, codes, cyclic))
    return found


def _with_interval(
    values: Floats, lower: Floats, upper: Floats, q: float, codes: Codes | None, cyclic: bool
) -> Estimate:
    """`lower` and `upper` are the ascending values with censored ones at their bound and at +inf."""
    n = len(values)
    plain = Estimate(float(upper[nearest_rank(n, q) - 1]), n=n)
    if lower[0] == lower[-1]:
        return replace(plain, low=plain.value, high=plain.value) if n >= needed(q) else _too_few(plain, n, q)
    if n < needed(q):
        return _too_few(plain, n, q)
    if cyclic:
        return replace(plain, why=IN_CYCLES)
    error = of_a_tail(error_below(values, lower, q, codes), values, lower, q)
    effective = effective_size(error, q, n)
    if effective < needed(q):
        return _too_few(plain, effective, q)
    if min(q, 1 - q) <= TAIL_SHARE:
        bulk = bulk_of(values, lower, codes)
        if bulk.of_users < needed(q):
            return _too_few(plain, bulk.of_users, q)
        if bulk.along_time < bulk.least(q):
            return replace(plain, why=f"≈{int(bulk.along_time)} < {int(bulk.least(q))}")
        effective /= bulk.unseen(q)
    below, above = _binomial_limits(effective, q)
    below, above = below * _widening(error, 1 - q, n), above * _widening(error, q, n)
    low_rank = max(1, math.floor((q - below) * n + 0.5)) - 1
    high_rank = min(n, math.ceil((q + above) * n + 0.5)) - 1
    if upper[high_rank] == math.inf != lower[high_rank]:
        return replace(plain, why=f"interval {DEPENDS_ON_CUT_OFF}")
    return replace(plain, low=float(lower[low_rank]), high=float(upper[high_rank]))


def _too_few(plain: Estimate, effective: float, q: float) -> Estimate:
    about = "" if effective == plain.n else "≈"
    return replace(plain, why=f"{about}{int(effective)} < {needed(q)}")


def _binomial_limits(n: float, q: float) -> tuple[float, float]:
    """How far below and above q the ranks are, as shares, that bound percentile q of n independent values.

    The binomial quantiles of Hahn & Meeker (1991, section 5.2) between the integers, since n is no integer either.
    """
    low, high = (special.bdtrik(np.array([TAIL, 1 - TAIL]), n, q) + 0.5) / n
    return max(0.0, q - float(low)), max(0.0, float(high) - q)


def _widening(error: MeanError, share: float, n: int) -> float:
    """By which factor the limit on the side of a tail moves out, because its values come in clusters.

    `share` is what the tail leaves. Batches of independent values are skewed too, which the binomial limits know: only
    what exceeds that, by more than its noise, counts.
    """
    skewness = error.skewness if share < 0.5 else -error.skewness
    natural = max(0.0, (2 * share - 1) / math.sqrt(n * share * (1 - share)))
    t = t_quantile(error.freedom)
    return skewed_quantile(t, 0.7 * max(0.0, skewness - 1.3 * natural)) / t


def share_interval(
    hits_in_time_order: npt.ArrayLike,
    users: npt.ArrayLike | None = None,
    latencies: npt.ArrayLike | None = None,
) -> Estimate:
    """The share of true values in a series of booleans in time order: failures, or requests that met an SLO.

    Clopper & Pearson's interval on the effective sample size (Korn & Graubard 1998). `latencies` of the same requests,
    where hits are decided by them, show users in lock step better than the hits do. Where latencies repeat in cycles
    and every request is a hit, or none is, each cycle counts as one.
    """
    hits = np.asarray(hits_in_time_order, dtype=np.float64)
    n, share = len(hits), float(hits.mean()) if len(hits) else 0.0
    if n == 0:
        return Estimate(None, why="no samples")
    values = hits if latencies is None else np.asarray(latencies, dtype=np.float64)
    rarer = min(share, 1 - share)
    cycle = cycle_length(values) if latencies is not None or rarer * n >= LEAST_RARE else None
    if cycle is not None and rarer > 0:
        return Estimate(share, n=n, why=IN_CYCLES)
    codes = user_codes(users)
    ascending = np.sort(values)
    bulk = bulk_of(values, ascending, codes)
    if rarer == 0:
        return Estimate(share, *_clopper_pearson(share, min(n, bulk.most) if cycle is None else n / cycle), n)
    error = mean_error(hits, codes)
    if error is None:
        return Estimate(share, n=n, why=f"{n} < {LEAST_POINTS}")
    if latencies is not None:
        error = of_a_tail(error, values, ascending, max(share, 1 - share))
    effective = effective_size(error, share, n)
    if latencies is not None and rarer <= TAIL_SHARE:
        if bulk.along_time < bulk.least(1 - rarer):
            return Estimate(share, n=n, why=f"≈{int(bulk.along_time)} < {int(bulk.least(1 - rarer))}")
        effective /= bulk.unseen(1 - rarer)
    enough = rarer * min(effective, bulk.most)
    if enough < LEAST_EFFECTIVE and enough < rarer * n / 2:
        rarer_ones = "misses" if share > 0.5 else "hits"
        return Estimate(share, n=n, why=f"≈{int(enough)} < {LEAST_EFFECTIVE} effective {rarer_ones}")
    low, high = _clopper_pearson(share, effective)
    low = share - (share - low) * _widening(error, share, n)
    high = share + (high - share) * _widening(error, 1 - share, n)
    return Estimate(share, max(0.0, low), min(1.0, high), n)


def _clopper_pearson(share: float, n: float) -> tuple[float, float]:
    hits, misses = share * n, (1 - share) * n
    low = float(special.betaincinv(hits, misses + 1, TAIL)) if hits > 0 else 0.0
    high = float(special.betaincinv(hits + 1, misses, 1 - TAIL)) if misses > 0 else 1.0
    return low, high


def objective_answer(share: Estimate, q: float) -> Answer:
    """Do at least a share q of the requests keep the limit? By the interval of the share of those that did."""
    if share.low is not None and share.low >= q:
        return "met"
    if share.high is not None and share.high < q:
        return "missed"
    return "not enough evidence"


def mean_interval(in_time_order: npt.ArrayLike, users: npt.ArrayLike | None = None) -> Estimate:
    """The mean of a series in time order, with a t interval that allows for correlation and skewness."""
    values = np.asarray(in_time_order, dtype=np.float64)
    n = len(values)
    if n == 0:
        return Estimate(None, why="no samples")
    mean = float(values.mean())
    if not math.isfinite(mean):
        return Estimate(mean, n=n, why="failed requests have no finite mean")
    error = mean_error(values, user_codes(users))
    if error is None:
        return Estimate(mean, n=n, why=f"{n} < {LEAST_POINTS}")
    if cycle_length(values) is not None:
        return Estimate(mean, n=n, why=IN_CYCLES)
    low, high = error.limits()
    return Estimate(mean, mean + low, mean + high, n)


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
    inside = (stamps >= start) & (stamps < end)
    codes = np.unique(np.asarray(users)[inside], return_inverse=True)[1]
    if not len(codes):
        return np.zeros((0, PARTS))
    parts = np.floor((stamps[inside] - start) / (end - start) * PARTS).astype(np.intp)
    return sums_by_cell(codes, np.minimum(parts, PARTS - 1), weights[inside])


def rate_interval(amounts: npt.ArrayLike, seconds: float, by_user: npt.ArrayLike | None = None) -> Estimate:
    """Amount per second over a window of `seconds`: throughput in tokens/s, goodput or requests in 1/s.

    `amounts` arrived in successive equal parts of the window, best `BINS` of them (`bin_events` makes them of events).
    `by_user` (`bin_by_user`) adds the variance between users of a closed loop. `n` is the number of parts.
    """
    parts = np.asarray(amounts, dtype=np.float64)
    n = len(parts)
    if n == 0:
        return Estimate(None, why="no samples")
    rate = float(parts.sum()) / seconds
    filled = int(np.count_nonzero(parts))
    if n < LEAST_POINTS or filled < LEAST_BINS:
        return Estimate(rate, n=n, why=f"arrivals in {filled} of {n} parts of the window")
    cycle = cycle_length(parts)
    cosines = COSINES[-1] if cycle is None else min(COSINES[-1], int(COSINES_PER_CYCLE * n / cycle))
    if cycle is not None and cosines < LEAST_COSINES:
        return Estimate(rate, n=n, why=f"{n / cycle:.1f} cycles of arrivals in the window")
    error = mean_error(parts, cosines=cosines)
    assert error is not None, "there are `LEAST_POINTS`"
    cells = np.zeros((0, 0)) if by_user is None else np.asarray(by_user, dtype=np.float64)
    if len(cells) > 1:
        error = with_users(error, (cells - cells.mean(axis=0)) / n)
    low, high = (limit * n / seconds for limit in error.limits())
    return Estimate(rate, max(0.0, rate + low), rate + high, n)
