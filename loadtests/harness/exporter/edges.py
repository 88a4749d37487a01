"""The edges of the exported histograms, in seconds."""

from __future__ import annotations

from collections.abc import Iterable

PER_DECADE = 6  # so neighbours are 47 % apart
LEAST, MOST = -4, 3  # powers of ten: 100 µs to 1000 s
FINE = 1.08  # ratio of neighbours around an objective's limit: at most 10 % apart after rounding
FINE_STEPS = 9  # to either side, so from half the limit to twice the limit


def edges_around(limits: Iterable[float]) -> tuple[float, ...]:
    """Ascending. Every limit is an edge itself, so the count of requests within it is exact."""
    given = sorted(set(limits))
    coarse = [_rounded(10 ** (step / PER_DECADE)) for step in range(LEAST * PER_DECADE, MOST * PER_DECADE + 1)]
    fine = [_rounded(limit * FINE**step) for limit in given for step in range(-FINE_STEPS, FINE_STEPS + 1) if step]
    reach = FINE**FINE_STEPS
    far = [edge for edge in coarse if not any(limit / reach <= edge <= limit * reach for limit in given)]
    return tuple(sorted({*far, *fine, *given}))


def _rounded(edge: float) -> float:
    return float(f"{edge:.4g}")
