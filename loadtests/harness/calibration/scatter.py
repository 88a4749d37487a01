"""True against measured TTFT of single requests, for the terminal: where the client is right, all lie on the diagonal.

    measured
    301 ms ┤                                     ··●●
           ┤                             ··●●●··
           ┤                     ··●●●··
    100 ms ┤·●●●··
           └┬──────────────────────────────────────┬ true
            100 ms                            301 ms

A dot is a single request, a circle several.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from enginebench.records.formatting import format_seconds

WIDTH, HEIGHT = 56, 12  # characters
MARKS = ((10, "●"), (2, "o"), (1, "·"))  # requests from which on a character stands


def scatter(points: Sequence[tuple[float, float]]) -> list[str]:
    """Lines of fewer than 80 columns. Both axes have the same range of seconds, and are linear."""
    values = [value for point in points for value in point]
    low, high = min(values), max(values)
    span = max(high - low, 1e-6)

    def place(value: float, cells: int) -> int:
        return round((value - low) / span * (cells - 1))

    counts = Counter((place(true, WIDTH), place(measured, HEIGHT)) for true, measured in points)
    ends = [format_seconds(low), format_seconds(high)]
    margin = max(map(len, ends))
    lines = [f"{'measured':>{margin}}"]
    for row in reversed(range(HEIGHT)):
        label = ends[1] if row == HEIGHT - 1 else ends[0] if row == 0 else ""
        marks = (_mark(counts[column, row]) for column in range(WIDTH))
        lines.append(f"{label:>{margin}} ┤{''.join(marks).rstrip()}")
    lines.append(f"{'':{margin}} └┬{'─' * (WIDTH - 2)}┬ true")
    lines.append(f"{'':{margin}}  {ends[0]}{ends[1]:>{WIDTH - len(ends[0])}}")
    return lines


def _mark(count: int) -> str:
    return next((mark for least, mark in MARKS if count >= least), " ")
