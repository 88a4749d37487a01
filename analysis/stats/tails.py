"""How far the share of values below a level may be from the true one, when requests are correlated.

Percentiles and shares are two readings of one distribution function, so their intervals come from the same limits: a
percentile's by inverting them at q (Woodruff 1952), a share's by finding the levels whose limits reach it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import special

from analysis.stats.dependence import LEAST_POINTS, Codes, MeanError, mean_error, skewed_quantile
from analysis.stats.estimate import TAIL, Floats, least_samples, t_quantile
from records.rules import nearest_rank

TAIL_SHARE = 0.25  # a percentile at most so far from the end of the distribution is one of its tails
TAIL_WIDENING = 2.5  # how much further from the end of the distribution the neighbouring percentile is
NEIGHBOUR = 1.4  # by how much correlation may be weaker at a percentile than at its neighbour
BULK = 1.2  # and where there is not a single hit or miss than at the median, along time
USERS = 0.5  # and at a tail where users differ
QUEUEING = 4.0  # requests in one effective request, above which there are queues
UNSEEN = 1.25  # times what a tail needs: the n* of the median at which its unseen bursts count as much as those seen
OF_NEED = 1 / 3  # of the effective requests that a tail must have, the median must have
ENOUGH = 75  # effective requests of the median that do for any tail
ENOUGH_OF_USERS = 600  # and by user
OF_QUEUES = 300  # effective requests by user that are asked for where replicas have queues of their own
DIFFERENT = 0.7  # of the effective size along time, below which users differ
DIFFERENT_IN_QUEUES = 0.9
ALIKE = 2.9  # over √(users − 1): what two standard deviations of chance add to the variance of users who are alike
ROUNDS = 2  # of the fixed-point iteration towards the limits of a share, after the first
HALF = 0.5  # a step: where correlation is weaker the further out, full steps would end on either side of the limit


def needed(q: float) -> int:
    """The least effective sample size with which percentile q has an interval: 16 for p50, 90 for p90, 172, 468."""
    least = least_samples(q)
    return max(LEAST_POINTS, min(5 * least // 2, least + 100))


@dataclass(frozen=True, slots=True)
class Worth:
    """Effective sample sizes of the share of values below one level: along time alone, and with users as well."""

    n: int
    along_time: float
    by_user: float
    users: float  # infinite where requests have none

    @property
    def of_users(self) -> float:
        """The most that is believed where users differ: a tail comes from the few users of the slowest replica, which
        is the slower the more it has."""
        different = DIFFERENT_IN_QUEUES if self.queued else min(DIFFERENT, 1 / (1 + ALIKE / math.sqrt(self.users - 1)))
        return self.by_user if self.by_user < different * self.along_time else math.inf

    @property
    def queued(self) -> bool:
        """Whether requests are so correlated along time that they must have waited in queues."""
        return self.along_time < self.n / QUEUEING

    def unseen(self, effective: float) -> float:
        """By how much the variance is raised on the side of the bursts that a window may have missed: twice where the
        median is worth `effective` requests, and 1 for independent requests."""
        correlated = max(0.0, 1 - 2 * self.along_time / self.n)
        return 1 + correlated * effective / self.along_time


@dataclass(frozen=True)
class Sample:
    """Latencies of one window in time order; failed requests are +inf. `codes` number their users."""

    values: Floats
    ascending: Floats
    codes: Codes | None

    @cached_property
    def bulk(self) -> Worth:
        """What the median shows. A tail alone does not show how few the bursts are that it comes from."""
        return self.worth(0.5)

    def worth(self, q: float) -> Worth:
        n = len(self.values)
        along_time = self._scaled(q, None)
        users = math.inf if self.codes is None else float(self.codes.max()) + 1
        if along_time is None:
            return Worth(n, n, n, users)
        by_user = along_time if self.codes is None else self._scaled(q, self.codes) or along_time
        return Worth(n, effective_size(along_time, n), effective_size(by_user, n), users)

    def withheld(self, q: float) -> str | None:
        """Why the limits of a share of q are not believed."""
        tail = min(q, 1 - q) <= TAIL_SHARE
        least = least_of_median(q, self.bulk.n) if tail else 0.0
        if self.bulk.along_time < least:
            return f"≈{int(self.bulk.along_time)} < {math.ceil(least)}"
        if self.codes is None:
            return None
        for worth, most in ((self.bulk, ENOUGH_OF_USERS), (self.worth(q), math.inf)):
            asked = OF_QUEUES if worth.queued else min(most, needed(q) / USERS) if tail else 0.0
            if worth.of_users < asked:
                return f"≈{int(worth.of_users)} < {math.ceil(asked)}"
        return None

    @cached_property
    def _errors(self) -> dict[tuple[float, bool], MeanError | None]:
        return {}

    @cached_property
    def _along_time(self) -> dict[float, MeanError | None]:
        return {}

    def _scaled(self, q: float, codes: Codes | None) -> MeanError | None:
        key = (q, codes is None)
        if key not in self._errors:
            self._errors[key] = self._error_below(q, codes)
        return self._errors[key]

    def _error_below(self, q: float, codes: Codes | None) -> MeanError | None:
        """The error of the share of values at or below percentile q, over its variance for one value; `None` where
        they are too few, or all the same."""
        level = self.ascending[nearest_rank(len(self.values), q) - 1]
        below = self.values <= level if level < self.ascending[-1] else self.values < level
        share = float(below.mean())
        if share == 0:
            return None
        hits = below.astype(np.float64)
        if q not in self._along_time:  # it is asked for with users and without
            self._along_time[q] = mean_error(hits)
        error = self._along_time[q]
        if error is not None and codes is not None:
            error = mean_error(hits, codes, along_time=error)
        return None if error is None else replace(error, variance=error.variance / (share * (1 - share)))

    def error(self, q: float) -> MeanError | None:
        """That error, no smaller than what the neighbouring percentile nearer to the median suggests.

        A tail is seen in few and clustered values, so the correlation along time is not taken for much weaker than
        where there are more of them.
        """
        mine, tail = self._scaled(q, self.codes), min(q, 1 - q)
        if mine is None or tail > TAIL_SHARE:
            return mine
        wider = min(0.5, TAIL_WIDENING * tail)
        alone = mine if self.codes is None else self._scaled(q, None)
        other = self._scaled(1 - wider if q > 0.5 else wider, None)
        if alone is None or other is None:
            return mine
        return replace(mine, variance=mine.variance + max(0.0, other.variance / NEIGHBOUR - alone.variance))

    def unseen(self, q: float) -> float:
        """By how much the variance of percentile q is raised on the side of bursts that the window may have missed."""
        return self.bulk.unseen(UNSEEN * needed(max(q, 0.5)))

    @property
    def lowest_without_misses(self) -> float:
        """The lower limit of a share of which there is not a single miss."""
        size = min(self.bulk.n, USERS * self.bulk.of_users, BULK * self.bulk.along_time)
        # Bursts that were missed would be a tail: they put no share below its beginning in doubt.
        beginning = min(1 - TAIL_SHARE, clopper_pearson(1.0, size)[0])
        return max(beginning, self.lowest_share(1.0, size))

    def lowest_share(self, share: float, size: float) -> float:
        """The lower limit of a share of which the effective sample size is `size`."""
        least = clopper_pearson(share, size)[0]
        return clopper_pearson(share, size / self.unseen(least))[0]

    def limits(self, q: float, error: MeanError, below: float = TAIL) -> tuple[float, float]:
        """How small and how large the share of values at or below the true percentile q may be by chance; over 1 where
        no value that was observed bounds the percentile. `below` is the probability that it is smaller.

        The binomial quantiles of Hahn & Meeker (1991, section 5.2) between the integers, since n* is no integer either.
        """
        n = len(self.values)
        size = effective_size(error, n)
        rarely = size / self.unseen(q)
        low = (float(special.bdtrik(below, size, q)) + 0.5) / size
        high = (float(special.bdtrik(1 - TAIL, rarely, q)) + 0.5) / rarely
        least = q - max(0.0, q - low) * widening(error, 1 - q, n)
        return least, q + max(0.0, high - q) * widening(error, q, n)

    def share_limits(self, share: float, error: MeanError) -> tuple[float, float]:
        """The 95 % interval of a share of values at or below a level: the shares from whose limits it is not further.

        `error` is that of the share itself. Correlation is measured at the limit and not at the share: a window with
        few misses shows little of it, and would have a short interval because it was lucky.
        """
        n = len(self.values)
        low = high = share
        for step in (1.0, *[HALF] * ROUNDS):
            at = self.error(max(low, 1 / n)) or error
            least = self.lowest_share(share, effective_size(at, n))
            low += step * (share + (least - share) * widening(at, share, n) - low)
            at = self.error(min(high, 1 - 1 / n)) or error
            most = clopper_pearson(share, effective_size(at, n))[1]
            high += step * (share + (most - share) * widening(at, 1 - share, n) - high)
        return self._believed(max(0.0, low), 0.0), self._believed(min(1.0, high), 1.0)

    def _believed(self, limit: float, end: float) -> float:
        """A limit in a tail for which the median is worth too little excludes nothing between itself and the end."""
        q = min(max(limit, 1 / len(self.values)), 1 - 1 / len(self.values))
        in_tail = abs(end - q) <= TAIL_SHARE
        return end if in_tail and self.bulk.along_time < least_of_median(q, self.bulk.n) else limit


def least_of_median(q: float, n: int) -> float:
    """What the median must be worth if a limit of tail q is to be believed. Independent requests have no bursts."""
    return min(OF_NEED * needed(q), ENOUGH, n / 3)


def effective_size(error: MeanError, n: int) -> float:
    """Effective sample size, less what the uncertainty of the variance costs: n* of Korn & Graubard (1998).

    `error` is scaled by the variance of one value.
    """
    if error.variance <= 0:
        return 2.0 * n
    certain = (t_quantile(math.inf) / t_quantile(error.freedom)) ** 2
    return min(2.0 * n, certain / error.variance)


def clopper_pearson(share: float, n: float) -> tuple[float, float]:
    """Clopper & Pearson's limits, for n that need not be an integer."""
    hits, misses = share * n, (1 - share) * n
    low = float(special.betaincinv(hits, misses + 1, TAIL)) if hits > 0 else 0.0
    high = float(special.betaincinv(hits + 1, misses, 1 - TAIL)) if misses > 0 else 1.0
    return low, high


def widening(error: MeanError, share: float, n: int) -> float:
    """By which factor the limit on the side of a tail moves out, because its values come in clusters.

    `share` is what the tail leaves. Batches of independent values are skewed too, which the binomial limits know: only
    what exceeds that, by more than its noise, counts.
    """
    if not 0 < share < 1:
        return 1.0
    skewness = error.skewness if share < 0.5 else -error.skewness
    natural = max(0.0, (2 * share - 1) / math.sqrt(n * share * (1 - share)))
    t = t_quantile(error.freedom)
    return skewed_quantile(t, 0.7 * max(0.0, skewness - 1.3 * natural)) / t
