"""Percentiles, shares and rates of one steady window, with intervals that allow for correlation.

The intervals refer to the long run of the measured system, with users assigned to replicas at random. For changes from
one run to the next, see repeats.py.

Percentiles and shares are two readings of one distribution function, so both come from the binomial distribution with
the effective sample size: a percentile lies between two order statistics, a share between Clopper & Pearson's limits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy import special

from enginebench.analysis.arrays import Flags, Floats
from enginebench.analysis.stats.effective_size import (
    MIN_POINTS,
    PARTS,
    Codes,
    Cycle,
    EffectiveSampleSize,
    cells_by_user,
    effective_size,
    find_cycle,
    mean_error,
    user_codes,
)
from enginebench.analysis.stats.student_t import CONFIDENCE
from enginebench.records.rules import nearest_rank
from enginebench.records.view import NO_SAMPLES, Estimate, Missing

TAIL = (1 - CONFIDENCE) / 2
NEGLIGIBLE = 0.01  # a percentile is reported if cut-off requests move it by no more than this share
TAIL_SHARE = 0.25  # share at either end of the distribution: percentiles inside it are tails
MAX_NEEDED = 90  # effective requests along time that are enough for any tail
BY_USER_FACTOR = 4  # more requests are needed if users differ: a tail comes from the few users of the slowest replica
MISSED_BURSTS = 24.0  # widens the upper end of a percentile: see `_missed_bursts`
MIN_EFFECTIVE = 15  # hits or misses, if they are correlated and no latencies show how strongly
BISECTIONS = 30  # enough to determine a share to a billionth
BINS = 240  # per window, for rates
MIN_BINS = 10  # bins with arrivals that an interval needs
RIGID = 0.65  # autocorrelation after one cycle above which a window's edges decide its rate


def min_samples(q: float) -> int:
    """Return how many samples the two-sided interval of percentile q needs: 6 for p50, 36 for p90, 72 for p95, 368 for
    p99."""
    # The largest value bounds the percentile from above unless all n lie below it: q^n ≤ 2.5 %. Likewise from below.
    return math.ceil(math.log(TAIL) / math.log(max(q, 1 - q)))


def min_requests(q: float) -> int:
    """Return the number of requests from which percentile q has an interval: 16 for p50, 36 for p90, 72 for p95, 368
    for p99."""
    return max(MIN_POINTS, min_samples(q))


@dataclass(frozen=True)
class _Requests:
    """Latencies of one window in time order; failed requests are +inf. `codes` number their users."""

    values: Floats
    codes: Codes | None

    @cached_property
    def ascending(self) -> Floats:
        return np.sort(self.values)

    @cached_property
    def cycle(self) -> Cycle | None:
        return find_cycle(self.values)

    def size_at(self, q: float) -> EffectiveSampleSize:
        """Return the effective size of the share of requests at or below percentile q."""
        level = self.ascending[nearest_rank(len(self.values), q) - 1]
        below = self.values <= level if level < self.ascending[-1] else self.values < level
        return effective_size(below, self.codes)

    @cached_property
    def median_size(self) -> EffectiveSampleSize:
        return self.size_at(0.5)


def percentile_intervals(
    in_time_order: npt.ArrayLike,
    qs: Sequence[float],
    users: npt.ArrayLike | None = None,
    censored: npt.ArrayLike | None = None,
) -> list[Estimate]:
    """Return percentiles (nearest rank) of the attempted requests in the order they were scheduled, failed ones as
    +inf.

    `users` names the user of each request (any integers or strings); without it only correlation along time counts.
    `censored` marks values that are only lower bounds (requests that were cut off): a percentile that depends on such
    values by more than `NEGLIGIBLE` is withheld (`CUT_OFF`). The value or the upper end of the interval may be +inf.

    The ends are order statistics (Hahn & Meeker 1991, section 5.2) as for n independent requests, where n is the
    effective sample size of the share at or below the percentile (Woodruff 1952). The upper end uses that of the median
    if it is smaller, because a few clustered values understate their correlation."""
    values = np.asarray(in_time_order, dtype=np.float64)
    requests = _Requests(values, user_codes(users))
    lower = upper = requests.ascending
    if censored is not None and np.any(censored):
        upper = np.sort(np.where(np.asarray(censored, dtype=bool), np.inf, values))
    estimates = []
    for q in qs:
        rank = nearest_rank(len(values), q) - 1
        if upper[rank] > lower[rank] * (1 + NEGLIGIBLE):
            estimates.append(Estimate(None, n=len(values), missing=Missing.CUT_OFF))
        else:
            estimates.append(_percentile_interval(requests, upper, q))
    return estimates


def _percentile_interval(requests: _Requests, upper: Floats, q: float) -> Estimate:
    """Return one percentile; `upper` are the ascending values with censored ones at +inf."""
    lower, n = requests.ascending, len(upper)
    plain = Estimate(float(upper[nearest_rank(n, q) - 1]), n=n)
    if n < min_requests(q):
        return replace(plain, missing=Missing.FEW_REQUESTS)
    if lower[0] == lower[-1]:
        return replace(plain, low=plain.value, high=plain.value)
    if requests.cycle is not None:
        return replace(plain, missing=Missing.CYCLIC)
    at, median = requests.size_at(q), requests.median_size
    plain = replace(plain, effective=at.size)
    if _withheld(q, at, median):
        return replace(plain, missing=Missing.FEW_REQUESTS)
    # Binomial quantiles interpolated between integers, because the effective size is not an integer.
    below = (float(special.bdtrik(TAIL, at.size, q)) + 0.5) / at.size
    certain = min(at.size, median.size) / _missed_bursts(q, median)
    above = (float(special.bdtrik(1 - TAIL, certain, q)) + 0.5) / certain
    high_rank = math.ceil(above * n + 0.5)
    beyond = high_rank > n and upper[-1] < math.inf
    high_rank = min(n, high_rank)
    if not beyond and upper[high_rank - 1] == math.inf != lower[high_rank - 1]:
        return replace(plain, missing=Missing.CUT_OFF)
    high = math.inf if beyond else float(upper[high_rank - 1])
    if high == math.inf and (1 - q) ** at.size > TAIL:  # not even the smallest value bounds it: neither end is known
        return replace(plain, missing=Missing.FEW_REQUESTS)
    low = float(lower[max(1, math.floor(below * n + 0.5)) - 1])
    return replace(plain, low=low, high=high, missing=Missing.FEW_REQUESTS if beyond else None)


def _withheld(q: float, at: EffectiveSampleSize, median: EffectiveSampleSize) -> bool:
    """Return whether there are too few effective requests for the interval of a tail. The median decides: a tail does
    not show how few bursts it comes from, and would select windows that had few by chance."""
    if min(q, 1 - q) > TAIL_SHARE:
        return False
    least = min(min_samples(q), MAX_NEEDED)
    if median.along_time < min(least, median.n / 3):  # independent requests have no bursts
        return True
    return median.users_differ and min(at.size, median.size) < BY_USER_FACTOR * least


def _missed_bursts(q: float, median: EffectiveSampleSize) -> float:
    """Return the factor that raises the variance on the side of a percentile that bursts move: a window that had few
    bursts by chance has both a low percentile and a small variance. The factor is 1 for independent requests."""
    beyond = median.along_time * (1 - max(q, 0.5))
    return 1 + median.correlation * MISSED_BURSTS / beyond


def share_interval(
    hits_in_time_order: npt.ArrayLike,
    users: npt.ArrayLike | None = None,
    latencies: npt.ArrayLike | None = None,
) -> Estimate:
    """Return the share of true values in a series of booleans in time order: failures, or requests that met an SLO.

    `latencies` of the same requests, if they decide the hits, show correlation and users in lock step better than the
    hits do. If latencies repeat in cycles and every request is a hit, or none is, each cycle counts as one request.
    """
    return share_intervals([hits_in_time_order], users, latencies)[0]


def share_intervals(
    hits_in_time_order: Sequence[npt.ArrayLike],
    users: npt.ArrayLike | None = None,
    latencies: npt.ArrayLike | None = None,
) -> list[Estimate]:
    """Return several shares of the same requests, such as those within each of several limits. The correlation of the
    latencies, which does not depend on the limit, is estimated once."""
    codes = user_codes(users)
    requests = None if latencies is None else _Requests(np.asarray(latencies, dtype=np.float64), codes)
    return [_share_interval(np.asarray(hits, dtype=bool), codes, requests) for hits in hits_in_time_order]


def _share_interval(hits: Flags, codes: Codes | None, requests: _Requests | None) -> Estimate:
    n, share = len(hits), float(hits.mean()) if len(hits) else 0.0
    if n == 0:
        return NO_SAMPLES
    rarer = min(share, 1 - share)
    if requests is not None:
        cycle = requests.cycle
    else:
        cycle = find_cycle(hits.astype(np.float64)) if rarer * n >= MIN_BINS else None
    if rarer == 0:
        low, size = _lowest_without_misses(n, requests, cycle)
        return Estimate(share, low if share else 0.0, 1.0 if share else 1 - low, n, effective=size)
    if n < MIN_POINTS:
        return Estimate(share, n=n, missing=Missing.FEW_REQUESTS)
    if cycle is not None:
        return Estimate(share, n=n, missing=Missing.CYCLIC)
    at = effective_size(hits, codes)
    if requests is None:
        median, slow, withheld = at, share < 0.5, 0 < rarer * at.size < MIN_EFFECTIVE and at.size < n / 2
    else:
        values, median = requests.values, requests.median_size
        slow, withheld = bool(np.median(values[hits]) > np.median(values[~hits])), _withheld(share, at, median)
    smaller = min(at.size, median.size)
    plain = Estimate(share, n=n, effective=smaller)
    if withheld:
        return replace(plain, missing=Missing.FEW_REQUESTS)
    below = 1 - share if slow else share
    low, high = _lowest_share(below, smaller, median), clopper_pearson(below, at.size)[1]
    return replace(plain, low=1 - high, high=1 - low) if slow else replace(plain, low=low, high=high)


def _lowest_without_misses(n: int, requests: _Requests | None, cycle: Cycle | None) -> tuple[float, float]:
    """Return the lower end of a share without a single miss, and its effective sample size."""
    if cycle is not None:
        return clopper_pearson(1.0, n / cycle.length)[0], n / cycle.length
    if requests is None or n < MIN_POINTS:
        return clopper_pearson(1.0, n)[0], n
    median = requests.median_size
    # Missed bursts would be in the tail, so they do not affect shares below the beginning of the tail.
    beginning = min(1 - TAIL_SHARE, clopper_pearson(1.0, median.size)[0])
    return max(beginning, _lowest_share(1.0, median.size, median)), median.size


def share_bounds(
    share: Estimate, latencies_in_time_order: npt.ArrayLike, users: npt.ArrayLike | None = None
) -> tuple[float | None, float | None]:
    """Return the ends of a share's interval or, if the interval is withheld, wider bounds."""
    if share.low is not None or share.value is None:
        return share.low, share.high
    return widest_bounds(share.value, latencies_in_time_order, users)


def widest_bounds(
    share: float, latencies_in_time_order: npt.ArrayLike, users: npt.ArrayLike | None = None
) -> tuple[float, float]:
    """Return bounds for a share of requests within a limit if the share's interval is withheld, to decide clear cases:
    3 of 96 requests within a limit do not become 95 % in the long run.

    The interval of the median is never withheld. If the median lies above the limit, the share is at most the share of
    requests up to the median; if below, at least that. Repeated cycles count as one request each. For any correlation,
    P(S ≥ s) ≤ E(S) / s (Markov's inequality).
    """
    requests = _Requests(np.asarray(latencies_in_time_order, dtype=np.float64), user_codes(users))
    low, high = TAIL * share, 1 - TAIL * (1 - share)
    n = len(requests.values)
    if n < MIN_POINTS:
        return low, high
    if requests.cycle is not None:
        bounds = clopper_pearson(share, n / requests.cycle.length)
    elif share < 0.5:
        bounds = 0.0, clopper_pearson(0.5, requests.median_size.size)[1]
    else:
        bounds = _lowest_share(0.5, requests.median_size.size, requests.median_size), 1.0
    return max(low, bounds[0]), min(high, bounds[1])


def _lowest_share(share: float, size: float, median: EffectiveSampleSize) -> float:
    """Return the lower end of a share of requests below a level: the least q whose percentile's upper end is that
    level."""
    low, excluded = 0.0, clopper_pearson(share, size)[0]
    for _ in range(BISECTIONS):
        middle = (low + excluded) / 2
        if clopper_pearson(share, size / _missed_bursts(middle, median))[0] >= middle:
            low = middle
        else:
            excluded = middle
    return low


def clopper_pearson(share: float, n: float) -> tuple[float, float]:
    """Return Clopper & Pearson's limits, for n that need not be an integer."""
    hits, misses = share * n, (1 - share) * n
    low = float(special.betaincinv(hits, misses + 1, TAIL)) if hits > 0 else 0.0
    high = float(special.betaincinv(hits + 1, misses, 1 - TAIL)) if misses > 0 else 1.0
    return low, high


def bin_events(times: npt.ArrayLike, start: float, end: float, bins: int = BINS) -> Floats:
    """Count events in equal parts of [start, end), as `rate_interval` takes them."""
    return np.histogram(np.asarray(times, dtype=np.float64), bins, (start, end))[0].astype(np.float64)


def bin_by_user(
    times: npt.ArrayLike, users: npt.ArrayLike, start: float, end: float, amounts: npt.ArrayLike | None = None
) -> Floats:
    """Sum amounts of each user (rows) in `PARTS` equal parts of [start, end), as `rate_interval` takes them.

    One event for each request is enough: its tokens at the instant at which it ended.
    """
    stamps = np.asarray(times, dtype=np.float64)
    weights = np.ones(len(stamps)) if amounts is None else np.asarray(amounts, dtype=np.float64)
    inside = (stamps >= start) & (stamps < end)
    codes = np.unique(np.asarray(users)[inside], return_inverse=True)[1]
    if not len(codes):
        return np.zeros((0, PARTS))
    parts = np.floor((stamps[inside] - start) / (end - start) * PARTS).astype(np.intp)
    return cells_by_user(codes, np.minimum(parts, PARTS - 1), weights[inside])


def rate_interval(amounts: npt.ArrayLike, seconds: float, by_user: npt.ArrayLike | None = None) -> Estimate:
    """Return the amount per second over a window of `seconds`: throughput in tokens/s, goodput or requests in 1/s.

    `amounts` arrived in the `BINS` successive equal parts of the window (see `bin_events`).
    `by_user` (`bin_by_user`) adds the variance between users of a closed loop. `n` is the number of parts.
    """
    parts = np.asarray(amounts, dtype=np.float64)
    n = len(parts)
    rate = float(parts.sum()) / seconds
    if np.count_nonzero(parts) < MIN_BINS:
        return Estimate(rate, n=n, missing=Missing.FEW_REQUESTS)
    cycle = find_cycle(parts)
    if cycle is not None and cycle.rho > RIGID:
        return Estimate(rate, n=n, missing=Missing.CYCLIC)
    cells = None if by_user is None else np.asarray(by_user, dtype=np.float64)
    error = mean_error(parts, None if cells is None or not len(cells) else (cells - cells.mean(axis=0)) / n)
    half = error.half_width * n / seconds
    return Estimate(rate, max(0.0, rate - half), rate + half, n)
