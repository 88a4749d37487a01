"""The buckets of live distributions, and those of them that the exporter shows."""

from __future__ import annotations

from collections.abc import Iterable
from math import log

PER_DECADE = 6  # exported edges, so neighbours are 47 % apart
LEAST, MOST = -4, 3  # powers of ten: 100 µs to 1000 s
FINE = 1.08  # ratio of neighbours around an objective's limit: at most 10 % apart after rounding
FINE_STEPS = 9  # to either side, so from half the limit to twice the limit
GROWTH = 1.02  # of the buckets that percentiles are read from: the middle of one is within 1 % of everything in it
GAP_GROWTH = 1.08  # likewise of the gaps between chunks, which are a hundred times as many: within 4 %
SMALLEST, LARGEST = 1e-6, 1e7  # from a microsecond on


def edges_around(limits: Iterable[float]) -> tuple[float, ...]:
    """The exported edges, ascending. Every limit is an edge itself, so the count of requests within it is exact."""
    given = sorted(set(limits))
    coarse = [_rounded(10 ** (step / PER_DECADE)) for step in range(LEAST * PER_DECADE, MOST * PER_DECADE + 1)]
    fine = [_rounded(limit * FINE**step) for limit in given for step in range(-FINE_STEPS, FINE_STEPS + 1) if step]
    reach = FINE**FINE_STEPS
    far = [edge for edge in coarse if not any(limit / reach <= edge <= limit * reach for limit in given)]
    return tuple(sorted({*far, *fine, *given}))


def with_grid(exported: Iterable[float], growth: float) -> tuple[float, ...]:
    """All edges, ascending: the exported ones among them, so that their counts are sums of whole buckets."""
    steps = int(log(LARGEST / SMALLEST) / log(growth))
    return tuple(sorted({*(SMALLEST * growth**step for step in range(steps + 1)), *exported}))


def _rounded(edge: float) -> float:
    return float(f"{edge:.4g}")
