"""The upper end of an interval as text."""

from __future__ import annotations

from collections.abc import Callable

from analysis.verdict.statistics import Estimate

INFINITE = "∞"


def upper_end(estimate: Estimate, write: Callable[[float], str]) -> str:
    """∞ where nothing that was observed bounds it. `write` has its own word for one among the failed requests."""
    if estimate.high is None:
        raise ValueError(f"{estimate} has no interval.")
    return INFINITE if estimate.unbounded else write(estimate.high)
