"""Is a proportion above or below q? A sequential test that may be evaluated and stopped after any request.

The likelihood ratio of each p above q against q itself is a nonnegative supermartingale wherever the true proportion is
at most q, and so is its mean over a mixture of such p (Robbins 1970). By Ville's inequality it ever reaches 1/α with
probability α at most, however often it is looked at (Howard et al. 2021; Waudby-Smith & Ramdas 2024). The mixture is a
Beta distribution truncated at q, so the integral is an incomplete beta function.

That is proven for independent requests. Here the counts are effective ones of correlated requests, and the error rate
is calibrated by simulation: see docs/statistics.md.
"""

from __future__ import annotations

import math

TERMS = 10_000
PRECISION = 1e-12


def log_evidence(good: float, bad: float, q: float) -> tuple[float, float]:
    """Natural logarithms of the evidence that the proportion of good ones is above q, and that it is below.

    `good` and `bad` are counts, or effective counts, of zero or more.
    """
    a, b = (q / (1 - q), 1.0) if q >= 0.5 else (1.0, (1 - q) / q)  # Beta(19, 1) at q = 0.95: its mean is q
    at_q = good * math.log(q) + bad * math.log1p(-q)
    before_below, before_above = log_incomplete_beta(q, a, b)
    below, above = log_incomplete_beta(q, a + good, b + bad)
    gained = _log_beta(a + good, b + bad) - _log_beta(a, b) - at_q
    return gained + above - before_above, gained + below - before_below


def log_incomplete_beta(x: float, a: float, b: float) -> tuple[float, float]:
    """Logarithms of the regularised incomplete beta function I_x(a, b) and of its complement, for 0 < x < 1."""
    if x > (a + 1) / (a + b + 2):  # the continued fraction converges fast on the other side only
        above = _log_lower(1 - x, b, a)
        return math.log(-math.expm1(above)), above
    below = _log_lower(x, a, b)
    return below, math.log(-math.expm1(below))


def _log_lower(x: float, a: float, b: float) -> float:
    log = a * math.log(x) + b * math.log1p(-x) - math.log(a) - _log_beta(a, b) + math.log(_fraction(x, a, b))
    return min(log, -1e-300)


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def _fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method (DLMF 8.17.22)."""
    tiny = 1e-300
    value, numerator, denominator = 1.0, 1.0, 0.0
    for k in range(TERMS):
        m = k // 2
        if k == 0:
            term = 1.0
        elif k % 2:
            term = -(a + m) * (a + b + m) * x / ((a + k - 1) * (a + k))
        else:
            term = m * (b - m) * x / ((a + k - 1) * (a + k))
        denominator = 1 / ((1 + term * denominator) or tiny)
        numerator = (1 + term / numerator) or tiny
        value *= numerator * denominator
        if k and abs(numerator * denominator - 1) < PRECISION:
            break
    return value - 1.0
