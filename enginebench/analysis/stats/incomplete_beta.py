"""The regularised incomplete beta function, and the quantiles that follow from it.

SciPy has them as `betainc`, `betaincinv`, `bdtrik` and `stdtrit`, but takes 113 MB.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

EPSILON = sys.float_info.epsilon
MAX_STEPS = 10_000


def incomplete_beta(a: float, b: float, x: float) -> float:
    """Return I_x(a, b), by Lentz's method for its continued fraction (Numerical Recipes, third edition, 6.4)."""
    if a <= 0 or x >= 1:
        return 1.0
    if b <= 0 or x <= 0:
        return 0.0
    if x > (a + 1) / (a + b + 2):  # the fraction converges slowly
        return 1 - incomplete_beta(b, a, 1 - x)
    logarithm = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    c, d = 1.0, 1 / _nonzero(1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, MAX_STEPS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for coefficient in (even, odd):
            d = 1 / _nonzero(1 + coefficient * d)
            c = _nonzero(1 + coefficient / c)
            fraction *= c * d
        if abs(c * d - 1) < EPSILON:
            break
    return math.exp(logarithm) * fraction / a


def beta_quantile(a: float, b: float, p: float) -> float:
    """Return the x at which I_x(a, b) is p."""
    return _root(lambda x: incomplete_beta(a, b, x) - p, 0.0, 1.0)


def binomial_quantile(p: float, n: float, share: float) -> float:
    """Return the k at which the binomial distribution function is p; k and n need not be integers."""

    def error(k: float) -> float:
        return incomplete_beta(n - k, k + 1, 1 - share) - p

    return 0.0 if error(0.0) >= 0 else _root(error, 0.0, n)


def student_t_quantile(p: float, freedom: float) -> float:
    """Return the t that is exceeded with probability 1 - p, for p ≥ 0.5."""
    x = beta_quantile(0.5, freedom / 2, 2 * p - 1)
    return math.sqrt(freedom * x / (1 - x)) if x < 1 else math.inf


def _nonzero(value: float) -> float:
    return value if abs(value) > 1e-300 else 1e-300


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Return the root between two points of opposite sign.

    T. R. Chandrupatla, A new hybrid quadratic/bisection algorithm, Advances in Engineering Software 28 (1997).
    """
    a, b = high, low
    at_a, at_b = function(a), function(b)
    part = 0.5
    while True:
        x = a + part * (b - a)
        at_x = function(x)
        if (at_x > 0) == (at_a > 0):
            c, at_c = a, at_a
        else:
            c, at_c = b, at_b
            b, at_b = a, at_a
        a, at_a = x, at_x
        best, at_best = (a, at_a) if abs(at_a) < abs(at_b) else (b, at_b)
        tolerance = (2 * EPSILON * abs(best) + sys.float_info.min) / abs(b - a)
        if at_best == 0 or tolerance > 0.5:
            return best
        position, height = (a - b) / (c - b), (at_a - at_b) / (at_c - at_b)
        part = 0.5
        if height**2 < position and (1 - height) ** 2 < 1 - position:  # inverse quadratic interpolation is reliable
            part = at_a / (at_b - at_a) * at_c / (at_b - at_c)
            part += (c - a) / (b - a) * at_a / (at_c - at_a) * at_b / (at_c - at_b)
        part = min(1 - tolerance, max(tolerance, part))
