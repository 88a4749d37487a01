"""How many independent requests a tail is worth.

Its own correlation is seen in few and clustered values, so that of the values nearer to the median counts too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from analysis.verdict.statistics.dependence import LEAST_POINTS, Codes, MeanError, mean_error
from analysis.verdict.statistics.estimate import Floats, least_samples, nearest_rank, t_quantile

TAIL_SHARE = 0.25  # a percentile at most so far from the end of the distribution is one of its tails
TAIL_WIDENING = 2.5  # how much further from the end of the distribution the neighbouring percentile is
NEIGHBOUR = 1.4  # by how much correlation may be weaker at a percentile than at its neighbour
BULK = 1.2  # and where there is not a single hit or miss than at the median, along time
USERS = 0.5  # and at a tail percentile where users differ
UNSEEN = 0.5  # variance of a tail for the bursts that a short window did not show, against what its n* leaves open
SURPLUS = 150  # effective requests that the median must have beyond those that the tail must have
DIFFERENT = 0.7  # of the effective sample size along time, below which users differ


def needed(q: float) -> int:
    """The least effective sample size with which percentile q has an interval: 16 for p50, 90 for p90, 172, 468."""
    least = least_samples(q)
    return max(LEAST_POINTS, min(5 * least // 2, least + 100))


def of_a_tail(error: MeanError, values: Floats, ascending: Floats, q: float) -> MeanError:
    """The error of the share of values at or below percentile q, no smaller than its neighbour's suggests.

    A tail is seen in few and clustered values, so the correlation along time is not taken for much weaker than at the
    neighbouring percentile nearer to the median, where there are more.
    """
    tail = min(q, 1 - q)
    if tail > TAIL_SHARE:
        return error
    wider = min(0.5, TAIL_WIDENING * tail)
    nearer = 1 - wider if q > 0.5 else wider
    mine, other = (error_below(values, ascending, p, None).variance / (p * (1 - p)) for p in (q, nearer))
    return replace(error, variance=error.variance + max(0.0, other / NEIGHBOUR - mine) * q * (1 - q))


def error_below(values: Floats, ascending: Floats, q: float, codes: Codes | None) -> MeanError:
    below = (values <= ascending[nearest_rank(len(values), q) - 1]).astype(np.float64)
    error = mean_error(below, codes)
    assert error is not None, "there are at least `needed` values"
    return error


@dataclass(frozen=True, slots=True)
class Bulk:
    """What the median shows of correlation. A tail alone does not show how few the bursts are that it comes from.

    Where users differ, a tail comes from the few users of the slowest replica, which is the slower the more it has.
    """

    n: int
    along_time: float  # effective sample sizes
    by_user: float

    @property
    def of_users(self) -> float:
        """The most that is believed of a tail where users differ."""
        return USERS * self.by_user if self.by_user < DIFFERENT * self.along_time else math.inf

    @property
    def most(self) -> float:
        return min(self.of_users, BULK * self.along_time)

    def least(self, q: float) -> float:
        """What `along_time` must be if percentile q is to be believed. Independent requests have no bursts."""
        return min(needed(q) + SURPLUS, needed(0.99), self.n / 3)

    def unseen(self, q: float) -> float:
        """By how much the variance of the share beyond percentile q is raised; 1 for independent requests."""
        correlated = max(0.0, 1 - 2 * self.along_time / self.n)
        return 1 + UNSEEN * correlated * needed(q) / self.along_time


def bulk_of(values: Floats, ascending: Floats, codes: Codes | None) -> Bulk:
    n = len(values)
    if n < LEAST_POINTS or ascending[0] == ascending[-1]:
        return Bulk(n, n, n)
    along_time = effective_size(error_below(values, ascending, 0.5, None), 0.5, n)
    by_user = along_time if codes is None else effective_size(error_below(values, ascending, 0.5, codes), 0.5, n)
    return Bulk(n, along_time, by_user)


def effective_size(error: MeanError, share: float, n: int) -> float:
    """Effective sample size, less what the uncertainty of the variance costs: n* of Korn & Graubard (1998)."""
    if error.variance <= 0:
        return 2.0 * n
    certain = (t_quantile(math.inf) / t_quantile(error.freedom)) ** 2
    return min(2.0 * n, share * (1 - share) / error.variance * certain)
