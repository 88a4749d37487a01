"""What intervals are made of: the samples that a percentile needs, and the quantiles of Student's t."""

from __future__ import annotations

import math
from statistics import NormalDist

from enginebench.analysis.stats.incomplete_beta import incomplete_beta, student_t_quantile

CONFIDENCE = 0.95
TAIL = (1 - CONFIDENCE) / 2
NORMAL_FREEDOM = 1e6  # with more degrees of freedom, Student's t is normal to six digits


def least_samples(q: float) -> int:
    """How many samples the two-sided interval of percentile q needs: 6 for p50, 36 for p90, 72 for p95, 368 for p99."""
    # The largest value bounds the percentile from above unless all n lie below it: q^n ≤ 2.5 %. Likewise from below.
    return math.ceil(math.log(TAIL) / math.log(max(q, 1 - q)))


def t_quantile(freedom: float, confidence: float = CONFIDENCE) -> float:
    """How many standard errors to either side hold 95 %: 2.26 for nine degrees of freedom."""
    tail = (1 - confidence) / 2
    return NormalDist().inv_cdf(1 - tail) if freedom > NORMAL_FREEDOM else student_t_quantile(1 - tail, freedom)


def t_p_value(t: float, freedom: float) -> float:
    """Two-sided, of Student's t."""
    if freedom > NORMAL_FREEDOM:
        return math.erfc(abs(t) / math.sqrt(2))
    return incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))
