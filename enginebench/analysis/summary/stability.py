"""Find the series of a stage that were not steady within its window."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from enginebench.analysis.stats.steadiness import MIN_POINTS, steadiness
from enginebench.records.formatting import format_seconds, significant
from enginebench.records.metrics import IN_FLIGHT, THROUGHPUT, TPOT, TTFT, TTFT_SINCE_DUE
from enginebench.records.view import StageView


@dataclass(frozen=True, slots=True)
class Series:
    """How much a series may change: as a share of its level, and in its unit."""

    title: str
    share: float
    least: float = 0.0
    write: Callable[[float], str] = format_seconds


SERIES = {
    THROUGHPUT: Series("output tokens/s", 0.1, write=significant),
    TTFT: Series("mean TTFT", 0.2),
    TTFT_SINCE_DUE: Series("mean TTFT (user)", 0.2),
    TPOT: Series("mean TPOT", 0.05),
    IN_FLIGHT: Series("requests in flight", 0.2, 1.0, significant),
}


@dataclass(frozen=True, slots=True)
class Change:
    """A trend from the first to the last third of a window, or from its first tenth to the rest."""

    series: Series
    before: float
    after: float


def changes(view: StageView) -> Iterator[Change]:
    """Yield the large, significant changes in a stage whose load was planned to be steady."""
    if view.varies:
        return
    for name, series in SERIES.items():
        change = _change(view.series.get(name, ()), series)
        if change is not None:
            yield change


def _change(parts: Sequence[float | None], series: Series) -> Change | None:
    """Return a trend or an initial transient.

    A series that wanders so slowly that its window holds too few independent parts to test must change twice as much.
    """
    values = np.array([value for value in parts if value is not None])
    steady = steadiness(values)
    if steady or len(values) < MIN_POINTS:
        return None
    share = series.share if steady is False else 2 * series.share
    third, tenth = len(values) // 3, max(len(values) // 10, 1)
    for early, late in ((values[:third], values[-third:]), (values[:tenth], values[tenth:])):
        before, after = float(early.mean()), float(late.mean())
        if abs(after - before) > max(share * max(abs(before), abs(after)), series.least):
            return Change(series, before, after)
    return None
