"""Percentiles, shares and rates of one steady window, with intervals that allow for correlation.

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

from analysis.stats.dependence import (
    COSINES,
    LEAST_POINTS,
    PARTS,
    MeanError,
    cycle_length,
    find_cycle,
    mean_error,
    sums_by_cell,
    user_codes,
    with_users,
)
from analysis.stats.estimate import TAIL, Floats, least_samples
from analysis.stats.tails import Sample, clopper_pearson, effective_size, needed
from records.rules import nearest_rank
from records.view import BEYOND_OBSERVED, Estimate

DEPENDS_ON_CUT_OFF = "depends on cut-off requests"
IN_CYCLES = "requests repeat in cycles"
NEGLIGIBLE = 0.01  # share by which cut-off requests may move a percentile that is still given
BINS = 240  # of a window, for rates
LEAST_BINS = 10  # with arrivals
RIGID = 0.65  # autocorrelation after one cycle above which a window's edges decide its rate
LEAST_CYCLES = 4  # in a window
COSINES_PER_CYCLE = 1.2  # a cosine of index j has j/2 periods in the window: stay well below the cycle's own two
LEAST_RARE = 10  # hits or misses, to look for cycles among them
ONE_END = 1.5 * TAIL  # error of the lower end where it is the only one; all of the 5 % were too much in simulations
LEAST_EFFECTIVE = 15  # hits or misses, where they are correlated

Answer = Literal["met", "missed", "not enough evidence"]


def percentile_intervals(
    in_time_order: npt.ArrayLike,
    qs: Sequence[float],
    users: npt.ArrayLike | None = None,
    censored: npt.ArrayLike | None = None,
) -> list[Estimate]:
    """Percentiles (nearest rank) of the attempted requests in the order they were scheduled, failed ones as +inf.

    `users` names the user of each request (any integers or strings); without it only correlation along time counts.
    `censored` is true where the value is only a lower bound (a request that was cut off): a percentile that depends on
    such values by more than `NEGLIGIBLE` is withheld (`DEPENDS_ON_CUT_OFF`). The value or the upper end of the interval
    may be +inf.

    The interval inverts that of the distribution function (Woodruff 1952) on the effective sample size, reduced for
    the uncertainty of the variance (Korn & Graubard 1998).
    """
    values = np.asarray(in_time_order, dtype=np.float64)
    if len(values) == 0:
        return [Estimate(None, why="no samples") for _ in qs]
    lower = np.sort(values)
    upper = lower if censored is None else np.sort(np.where(np.asarray(censored, dtype=bool), np.inf, values))
    sample, cyclic = Sample(values, lower, user_codes(users)), cycle_length(values) is not None
    found = []
    for q in qs:
        rank = nearest_rank(len(values), q) - 1
        if upper[rank] > lower[rank] * (1 + NEGLIGIBLE):
            found.append(Estimate(None, n=len(values), why=DEPENDS_ON_CUT_OFF))
            continue
        found.append(_with_interval(sample, upper, q, cyclic))
    return found


def _with_interval(sample: Sample, upper: Floats, q: float, cyclic: bool) -> Estimate:
    """`upper` are the ascending values with censored ones at +inf."""
    lower, n = sample.ascending, len(upper)
    plain = Estimate(float(upper[nearest_rank(n, q) - 1]), n=n)
    if n < needed(q):
        return replace(plain, why=f"{n} < {needed(q)}")
    if lower[0] == lower[-1]:
        return replace(plain, low=plain.value, high=plain.value)
    if cyclic:
        return replace(plain, why=IN_CYCLES)
    error = sample.error(q)
    assert error is not None, "there are `needed` values, and not all the same"
    withheld = sample.withheld(q)
    if withheld is not None:
        return replace(plain, why=withheld)
    below, above = sample.limits(q, error)
    high_rank = math.ceil(above * n + 0.5) - 1
    beyond = high_rank > n and upper[-1] < math.inf
    high_rank = min(n - 1, high_rank)
    if not beyond and upper[high_rank] == math.inf != lower[high_rank]:
        return replace(plain, why=f"interval {DEPENDS_ON_CUT_OFF}")
    high = math.inf if beyond else float(upper[high_rank])
    if high == math.inf:
        size = effective_size(error, n)
        if (1 - q) ** size > TAIL:  # not even the smallest value bounds it from below, so neither end is known
            return replace(plain, why=f"≈{int(size)} < {least_samples(0.5)}")
        below, _ = sample.limits(q, error, below=ONE_END)
    low = float(lower[max(1, math.floor(below * n + 0.5)) - 1])
    return replace(plain, low=low, high=high, why=BEYOND_OBSERVED if beyond else None)


def share_interval(
    hits_in_time_order: npt.ArrayLike,
    users: npt.ArrayLike | None = None,
    latencies: npt.ArrayLike | None = None,
) -> Estimate:
    """The share of true values in a series of booleans in time order: failures, or requests that met an SLO.

    `latencies` of the same requests, where hits are decided by them, show correlation and users in lock step better
    than the hits do: the interval then holds those shares q for which the limit lies in the interval of percentile q.
    Where latencies repeat in cycles and every request is a hit, or none is, each cycle counts as one.
    """
    hits = np.asarray(hits_in_time_order, dtype=bool)
    n, share = len(hits), float(hits.mean()) if len(hits) else 0.0
    if n == 0:
        return Estimate(None, why="no samples")
    values = np.asarray(hits if latencies is None else latencies, dtype=np.float64)
    rarer = min(share, 1 - share)
    cycle = cycle_length(values) if latencies is not None or rarer * n >= LEAST_RARE else None
    if cycle is not None and rarer > 0:
        return Estimate(share, n=n, why=IN_CYCLES)
    codes = user_codes(users)
    if rarer == 0:
        sample = Sample(values, np.sort(values), codes)
        low = sample.lowest_without_misses if cycle is None else clopper_pearson(1.0, n / cycle)[0]
        return Estimate(share, low, 1.0, n) if share else Estimate(share, 0.0, 1 - low, n)
    error = mean_error(hits.astype(np.float64), codes)
    if error is None:
        return Estimate(share, n=n, why=f"{n} < {LEAST_POINTS}")
    error = replace(error, variance=error.variance / (share * (1 - share)))
    if latencies is None:
        turned = share < 0.5
        values = np.where(hits == turned, 1.0, 0.0)  # the rarer ones are the tail
        size = effective_size(error, n)
        if rarer * size < LEAST_EFFECTIVE and size < n / 2:
            rarer_ones = "misses" if share > 0.5 else "hits"
            return Estimate(share, n=n, why=f"≈{int(rarer * size)} < {LEAST_EFFECTIVE} effective {rarer_ones}")
        sample = Sample(values, np.sort(values), codes)
    else:
        turned = bool(np.median(values[hits]) > np.median(values[~hits]))
        sample = Sample(values, np.sort(values), codes)
    withheld = sample.withheld(1 - share if turned else share)
    if withheld is not None:
        return Estimate(share, n=n, why=withheld)
    low, high = sample.share_limits(1 - share if turned else share, _turned(error) if turned else error)
    return Estimate(share, 1 - high, 1 - low, n) if turned else Estimate(share, low, high, n)


def _turned(error: MeanError) -> MeanError:
    """The error of the share of the others."""
    return replace(error, skewness=-error.skewness)


def objective_answer(share: Estimate, q: float) -> Answer:
    """Do at least a share q of the requests keep the limit? By the interval of the share of those that did."""
    if share.low is not None and share.low >= q:
        return "met"
    if share.high is not None and share.high < q:
        return "missed"
    return "not enough evidence"


def bin_events(times: npt.ArrayLike, start: float, end: float, bins: int = BINS) -> Floats:
    """Numbers of events in equal parts of [start, end), as `rate_interval` takes them."""
    return np.histogram(np.asarray(times, dtype=np.float64), bins, (start, end))[0].astype(np.float64)


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
    cycle = find_cycle(parts)
    if cycle is not None and (cycle.rho > RIGID or cycle.length * LEAST_CYCLES > n):
        return Estimate(rate, n=n, why=IN_CYCLES)
    cosines = COSINES[-1] if cycle is None else min(COSINES[-1], int(COSINES_PER_CYCLE * n / cycle.length))
    error = mean_error(parts, cosines=cosines)
    assert error is not None, "there are `LEAST_POINTS`"
    cells = np.zeros((0, 0)) if by_user is None else np.asarray(by_user, dtype=np.float64)
    if len(cells) > 1:
        error = with_users(error, (cells - cells.mean(axis=0)) / n)
    low, high = (limit * n / seconds for limit in error.limits())
    return Estimate(rate, max(0.0, rate + low), rate + high, n)
