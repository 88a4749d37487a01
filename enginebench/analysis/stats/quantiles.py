"""The samples that the interval of a percentile needs, and the quantiles of Student's t."""

from __future__ import annotations

import math

from scipy import special

CONFIDENCE = 0.95
TAIL = (1 - CONFIDENCE) / 2


def min_samples(q: float) -> int:
    """Return how many samples the two-sided interval of percentile q needs: 6 for p50, 36 for p90, 72 for p95, 368 for
    p99."""
    # The largest value bounds the percentile from above unless all n lie below it: q^n ≤ 2.5 %. Likewise from below.
    return math.ceil(math.log(TAIL) / math.log(max(q, 1 - q)))


def t_quantile(freedom: float, confidence: float = CONFIDENCE) -> float:
    """Return how many standard errors to either side hold 95 %: 2.26 for nine degrees of freedom."""
    tail = (1 - confidence) / 2
    return float(special.ndtri(1 - tail) if math.isinf(freedom) else special.stdtrit(freedom, 1 - tail))


def t_p_value(t: float, freedom: float) -> float:
    """Return the two-sided p value of Student's t."""
    return 2 * float(special.stdtr(freedom, -abs(t)))
