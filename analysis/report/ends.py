"""The ends of an interval, and the upper one as text."""

from __future__ import annotations

import math
from collections.abc import Callable

from records.view import Estimate

INFINITE = "∞"


def has_ends(estimate: Estimate) -> bool:
    """Whether there is an interval, and not all of it among the failed requests."""
    return estimate.low is not None and math.isfinite(estimate.low)


def upper_end(estimate: Estimate, write: Callable[[float], str]) -> str:
    """∞ where nothing that was observed bounds it. `write` has its own word for one among the failed requests."""
    if estimate.high is None:
        raise ValueError(f"{estimate} has no interval.")
    return INFINITE if estimate.unbounded else write(estimate.high)
