"""The number with its interval, and percentiles by their definition."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy import special

Floats = npt.NDArray[np.float64]

CONFIDENCE = 0.95
TAIL = (1 - CONFIDENCE) / 2
BEYOND_OBSERVED = "the upper end lies beyond the largest value observed"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number, its 95 % interval, and from how many observations. `why` says why a value or an interval is missing.

    `effective` is the effective sample size of a percentile or share, at most `n`: so many independent requests would
    have this interval. `value` and `high` may be +inf: a percentile that falls among the failed requests. Where there
    is an interval and `why` is `BEYOND_OBSERVED`, `high` is +inf because nothing that was observed bounds the
    percentile.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0
    why: str | None = None
    effective: float | None = None

    @property
    def unbounded(self) -> bool:
        return self.why == BEYOND_OBSERVED

    def within(self, least: float, most: float) -> Estimate:
        """Without the part of the interval that cannot be: a share is at most 1."""
        low, high = (None if end is None else min(max(end, least), most) for end in (self.low, self.high))
        return replace(self, low=low, high=high)


def percentile(ordered: Floats, q: float) -> float:
    """The nearest-rank percentile of ascending values, for q in (0, 1]: the smallest value that at least a share q do
    not exceed.

    It is always a value that was observed, never an interpolation: Hyndman & Fan (1996), definition 1.
    """
    return float(ordered[nearest_rank(len(ordered), q) - 1])


def nearest_rank(n: int, q: float) -> int:
    """ceil(q·n) from 1 to n; q is rounded first, because 0.95 · 20 is a hair above 19 in binary."""
    return min(max(math.ceil(round(q * n, 9)), 1), n)


def least_samples(q: float) -> int:
    """How many samples the two-sided interval of percentile q needs: 6 for p50, 36 for p90, 72 for p95, 368 for p99."""
    # The largest value bounds the percentile from above unless all n lie below it: q^n ≤ 2.5 %. Likewise from below.
    return math.ceil(math.log(TAIL) / math.log(max(q, 1 - q)))


def interval_ranks(n: int, q: float) -> tuple[int, int]:
    """Ranks l < u, from 1, with P(x_(l) ≤ true percentile ≤ x_(u)) ≥ 95 %, at most 2.5 % beyond either end.

    The rank of the true percentile among n independent values is binomial(n, q) (Hahn & Meeker 1991, section 5.2).
    """
    return _binomial_quantile(TAIL, n, q), _binomial_quantile(1 - TAIL, n, q) + 1


def _binomial_quantile(share: float, n: int, q: float) -> int:
    """The least k with P(X ≤ k) ≥ share."""
    above: int = max(math.ceil(special.bdtrik(share, n, q)), 0)
    return above - 1 if above > 0 and special.bdtr(above - 1, n, q) >= share else above


def t_quantile(freedom: float, confidence: float = CONFIDENCE) -> float:
    """How many standard errors to either side hold 95 %: 2.26 for nine degrees of freedom."""
    tail = (1 - confidence) / 2
    return float(special.ndtri(1 - tail) if math.isinf(freedom) else special.stdtrit(freedom, 1 - tail))


def t_p_value(t: float, freedom: float) -> float:
    """Two-sided, of Student's t."""
    return 2 * float(special.stdtr(freedom, -abs(t)))
