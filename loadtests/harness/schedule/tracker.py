"""The progress of the current stage in this process: its users, and their requests without an answer.

The next boundary may depend on this progress immediately; metrics are counted in `live/`, seconds after a request
ended, when its window is known.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from enginebench.records.load import Rate
from enginebench.records.request import RequestRecord
from enginebench.records.slo import Objective
from enginebench.records.stage import SECOND, Nanoseconds, Stage
from loadtests.harness.schedule.control import StageProgress
from loadtests.harness.schedule.search.slices import ProcessSlices

RECENT = 10 * SECOND  # time for which scheduled requests are kept, because boundaries are announced late


class StageTracker:
    """The tracker of one process. Instants are nanoseconds since the run's start."""

    def __init__(self, objectives: Sequence[Objective] = ()) -> None:
        self.slices = ProcessSlices(objectives) if objectives else None
        """The slices of a search for capacity."""
        self.stage: Stage | None = None
        self.ready = False
        """Whether the arrivals of an open loop can be sent."""
        self.played = False
        """Whether all requests of a trace were sent."""
        self._users: set[int] = set()
        self._served: set[int] = set()
        self._in_flight: dict[str, Nanoseconds] = {}  # request -> when it was scheduled
        self._recent: deque[Nanoseconds] = deque()
        self._scheduled = 0  # requests scheduled in the window
        self._last = 0
        self._answered = 0
        self._outstanding = 0  # unanswered requests of the window, once its end is known

    def enter(self, stage: Stage) -> None:
        """Take a stage that has begun, or one of its boundaries."""
        if self.stage is None or self.stage.index != stage.index:
            self._served.clear()
            self._recent.clear()
            self._answered = 0
            self.played = False
        self.stage = stage
        if self.slices is not None:
            self.slices.enter(stage)
        if stage.steady_start is not None and stage.steady_end is None:
            inside = [at for at in self._recent if at >= stage.steady_start]
            self._scheduled, self._last = len(inside), max(inside, default=0)
        self._outstanding = sum(self._in_window(at) for at in self._in_flight.values())

    def user_started(self, user: int) -> None:
        self._users.add(user)

    def user_stopped(self, user: int) -> None:
        self._users.discard(user)
        self._served.discard(user)

    def request_scheduled(self, record: RequestRecord) -> None:
        at = self._in_flight[record.request_id] = record.t_sched
        self._outstanding += self._in_window(at)
        self._recent.append(at)
        while self._recent[0] < at - RECENT:
            self._recent.popleft()
        if self.slices is not None:
            self.slices.scheduled(record)
        stage = self.stage
        if stage is not None and stage.steady_start is not None and at >= stage.steady_start:
            self._scheduled += 1
            self._last = max(self._last, at)

    def request_ended(self, record: RequestRecord) -> None:
        if self._in_window(self._in_flight.pop(record.request_id)):
            self._outstanding -= 1
        self._answered += 1
        if self.slices is not None:
            self.slices.ended(record)
        if record.user is not None and record.user in self._users:
            self._served.add(record.user)

    @property
    def waits_for_requests(self) -> bool:
        """Return whether the next boundary depends on requests, not on time."""
        stage = self.stage
        if stage is None:
            return False
        if stage.steady_start is None and isinstance(stage.load, Rate):
            return stage.plan.warm_up.unit == "requests"
        if stage.steady_start is not None and stage.steady_end is None:
            return stage.plan.window.unit == "requests"
        return True

    def progress(self) -> StageProgress:
        stage = self.stage
        if stage is None:
            return StageProgress(-1, 0)
        start, end = stage.steady_start, stage.steady_end
        return StageProgress(
            stage=stage.index,
            boundary=end or start or 0,
            users=len(self._users),
            served=len(self._served),
            answered=self._answered,
            scheduled=self._scheduled if start is not None else 0,
            outstanding=self._outstanding,
            last_scheduled=self._last,
            ready=self.ready,
            played=self.played,
        )

    def _in_window(self, at: Nanoseconds) -> bool:
        """Return whether an instant lies in the window, whose end must be known."""
        stage = self.stage
        if stage is None or stage.steady_start is None or stage.steady_end is None:
            return False
        return stage.steady_start <= at < stage.steady_end
