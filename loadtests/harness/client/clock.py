"""The offset between the wall clock, by which the kernel stamps received bytes, and the monotonic clock.

The offset is constant: both clocks follow the same frequency corrections, and only a step of the wall clock (a new
setting or a leap second) changes it. So the offset is measured before and after each request. A reading of the wall
clock between two readings of the monotonic clock gives two bounds; overlapping bounds are narrowed, and bounds that
exclude each other prove a step.
"""

from __future__ import annotations

from time import monotonic_ns, time_ns
from typing import NamedTuple

ROUNDING = 1_000  # nanoseconds; a step this small does no harm


class WallOffset(NamedTuple):
    """Wall clock minus monotonic clock lies in [`low`, `high`], nanoseconds."""

    low: int
    high: int

    @classmethod
    def read(cls) -> WallOffset:
        """Read the clocks in 0.3 µs. The distance between the bounds is the duration of the three readings."""
        before = monotonic_ns()
        wall = time_ns()
        after = monotonic_ns()
        return cls(wall - after, wall - before)

    def narrowed(self, later: WallOffset) -> WallOffset | None:
        """Return the common bounds; `None` if they exclude each other, because the wall clock was set in between."""
        low, high = max(self.low, later.low), min(self.high, later.high)
        return WallOffset(low, high) if low - high < ROUNDING else None

    @property
    def middle(self) -> int:
        """Return the best estimate: a wall-clock stamp minus it is a reading of the monotonic clock."""
        return (self.low + self.high) // 2
