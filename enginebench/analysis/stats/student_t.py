"""Quantiles and p values of Student's t."""

from __future__ import annotations

import math

from scipy import special

CONFIDENCE = 0.95


def t_quantile(freedom: float) -> float:
    """Return the half width of the 95 % interval in standard errors: 2.26 for nine degrees of freedom."""
    tail = (1 - CONFIDENCE) / 2
    return float(special.ndtri(1 - tail) if math.isinf(freedom) else special.stdtrit(freedom, 1 - tail))


def t_p_value(t: float, freedom: float) -> float:
    """Return the two-sided p value of Student's t."""
    return 2 * float(special.stdtr(freedom, -abs(t)))
