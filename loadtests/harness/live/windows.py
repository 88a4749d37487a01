"""Which instants lie in the steady window of which stage, as far as this process has been told.

A boundary is told a moment after it was crossed, so requests are placed a moment after they ended (`SETTLED`): by then
it is known whether the instant at which one was scheduled lies in a window.
"""

from __future__ import annotations

from collections.abc import Iterator

from enginebench.records.stage import SECOND, Nanoseconds, Stage

SETTLED: Nanoseconds = 2 * SECOND  # after which an instant's place is known
OPEN: Nanoseconds = 2**62  # end of a window that has none yet


class Windows:
    """Call `enter` whenever a boundary has become known. Instants are nanoseconds since the run's start."""

    def __init__(self) -> None:
        self._spans: dict[int, tuple[Nanoseconds, Nanoseconds]] = {}  # by the stage's index, ascending

    def enter(self, stage: Stage) -> None:
        if stage.steady_start is not None:
            end = stage.steady_end
            if end is None:
                window = stage.plan.window
                end = stage.steady_start + round(window.amount * SECOND) if window.unit == "seconds" else OPEN
            self._spans[stage.index] = (stage.steady_start, end)

    def of(self, t: Nanoseconds) -> int | None:
        """The index of the stage in whose window `t` lies."""
        for index, start, end in self.during(t, t + 1):
            return index if start <= t < end else None
        return None

    def during(self, begin: Nanoseconds, end: Nanoseconds) -> Iterator[tuple[int, Nanoseconds, Nanoseconds]]:
        """The windows that overlap [begin, end), with their ends, the latest first."""
        for index, (start, stop) in reversed(self._spans.items()):
            if stop <= begin:
                return
            if start < end:
                yield index, start, stop
