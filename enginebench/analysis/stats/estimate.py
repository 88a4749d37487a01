"""Quantiles that intervals are made of: of the binomial rank of a percentile, and of Student's t."""

from __future__ import annotations

import math

from scipy import special

CONFIDENCE = 0.95
TAIL = (1 - CONFIDENCE) / 2


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
