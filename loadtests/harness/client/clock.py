"""The kernel stamps what it receives by the wall clock; everything here is measured on the monotonic clock.

The offset between the two is constant: both follow the same frequency corrections, and only a step of the wall clock
(it is set, or a leap second) moves one and not the other. So the offset is measured before and after each request.
A reading of the wall clock between two readings of the monotonic one bounds it from both sides; bounds that agree
narrow each other, and bounds that exclude each other prove a step.
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
        """About 0.3 µs. The bounds are as far apart as the three clock readings took together."""
        before = monotonic_ns()
        wall = time_ns()
        after = monotonic_ns()
        return cls(wall - after, wall - before)

    def narrowed(self, other: WallOffset) -> WallOffset | None:
        """What both allow. `None` when they are more than rounding apart: the wall clock was set in between."""
        low, high = max(self.low, other.low), min(self.high, other.high)
        return WallOffset(low, high) if low - high < ROUNDING else None

    @property
    def middle(self) -> int:
        """The best guess: a wall-clock stamp minus this is a reading of the monotonic clock."""
        return (self.low + self.high) // 2
