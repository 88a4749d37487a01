"""The boundaries of stages, decided from the progress reports of the processes that make the load.

    warm-up   at least as long as planned, and until every user has had an answer (bounded)
    window    as long as planned: requests scheduled in it are counted
    hold      the load stays until every request scheduled in the window has its answer (bounded)

A stage of an open loop keeps to its schedule: it begins at an instant that all processes know beforehand, and warm-up
and window are exactly as long as planned. So the same arrivals are counted, regardless of the process that sends them.

Time is an argument: there is no clock here. Only the planning process controls stages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from enginebench.records.load import TRACE, Rate, Users
from enginebench.records.stage import SECOND, Nanoseconds, Stage, StagePlan

LEAD: Nanoseconds = SECOND // 2  # between the announcement of an open stage and its start
UNDECIDED: Nanoseconds = 2**62  # start of an open stage that waits for the processes to be ready


@dataclass(frozen=True, slots=True)
class StageProgress:
    """The progress of the current stage in one process or in all.

    `boundary` is the last boundary that the process has heard of; the report is not valid for later ones.
    """

    stage: int
    boundary: Nanoseconds  # 0 at the stage's start, then `steady_start`, then `steady_end`
    users: int = 0  # users that have started
    served: int = 0  # users that have had an answer in this stage
    answered: int = 0  # requests that ended in this stage
    scheduled: int = 0  # requests scheduled in the window so far
    outstanding: int = 0  # requests scheduled in the window that have no answer yet
    last_scheduled: Nanoseconds = 0  # the latest request scheduled in the window
    ready: bool = False  # to send the arrivals of an open loop
    played: bool = False  # all requests of a trace were sent: no more will be scheduled


def together(reports: Sequence[StageProgress]) -> StageProgress:
    """Add up the reports of several processes."""
    return StageProgress(
        stage=min((report.stage for report in reports), default=-1),
        boundary=min((report.boundary for report in reports), default=0),
        users=sum(report.users for report in reports),
        served=sum(report.served for report in reports),
        answered=sum(report.answered for report in reports),
        scheduled=sum(report.scheduled for report in reports),
        outstanding=sum(report.outstanding for report in reports),
        last_scheduled=max((report.last_scheduled for report in reports), default=0),
        ready=bool(reports) and all(report.ready for report in reports),
        played=bool(reports) and all(report.played for report in reports),
    )


def next_stage(index: int, plan: StagePlan, now: Nanoseconds, ready: bool) -> Stage:
    """Return the stage after one that ended `now`. An open loop begins a little later, when all are `ready`."""
    if not isinstance(plan.load, Rate):
        return Stage(index, plan, now)
    return Stage(index, plan, now + LEAD if ready else UNDECIDED)


class StageControl:
    """The stages of one run. Call `update` whenever something may have changed; plans may be appended at any time.

    `following` may plan another stage at the end of the last planned one.
    """

    def __init__(
        self, plan: Sequence[StagePlan], following: Callable[[Nanoseconds], StagePlan | None] = lambda _: None
    ) -> None:
        self.plan = list(plan)
        self._following = following
        self.stages: list[Stage] = []
        self.over = False

    @property
    def current(self) -> Stage | None:
        """Return the current stage; after the end of the run, the last one."""
        return self.stages[-1] if self.stages else None

    def begin(self, now: Nanoseconds) -> None:
        """Start the first stage."""
        assert not self.stages
        self.stages.append(next_stage(0, self.plan[0], now, ready=False))

    @property
    def begun(self) -> tuple[Stage, ...]:
        """Return the stages whose start is known."""
        return tuple(stage for stage in self.stages if stage.start != UNDECIDED)

    def update(self, now: Nanoseconds, progress: StageProgress) -> bool:
        """Cross the next boundary if its time has come, and return whether anything changed."""
        stage = self.stages[-1]
        if self.over or progress.stage != stage.index:
            return False
        before = stage
        if stage.start == UNDECIDED:
            stage = next_stage(stage.index, stage.plan, now, progress.ready)
        elif stage.steady_start is None:
            stage = _end_warm_up(stage, now, progress)
        elif stage.steady_end is None:
            stage = _end_window(stage, stage.steady_start, now, progress)
        else:
            stage = _end_hold(stage, stage.steady_end, now, progress)
        changed = stage is not before and stage != before
        if stage.end is not None and len(self.stages) == len(self.plan):
            self.plan += filter(None, [self._following(now)])
        if stage.end is not None and len(self.stages) < len(self.plan):
            following = next_stage(len(self.stages), self.plan[len(self.stages)], stage.end, progress.ready)
            if following.start != UNDECIDED:
                stage = replace(stage, end=following.start)  # the load stays until then
            self.stages[-1:] = [stage, following]
        else:
            self.stages[-1] = stage
            self.over = stage.end is not None
        return changed

    def next_boundary(self) -> Nanoseconds | None:
        """Return the instant at which `update` must be called even without a report; `None` if there is none."""
        stage = self.stages[-1]
        bound = round(stage.plan.bound * SECOND)
        if self.over or stage.start == UNDECIDED:
            return None
        if stage.steady_start is None:
            warm_up = stage.plan.warm_up
            planned = round(warm_up.amount * SECOND) if warm_up.unit == "seconds" else 0
            return stage.start + planned
        if stage.steady_end is None:
            window = stage.plan.window
            return stage.steady_start + round(window.amount * SECOND) if window.unit == "seconds" else None
        return stage.steady_end + bound

    def end_window(self, now: Nanoseconds) -> None:
        """End the current stage's window: requests that are scheduled from now on are not counted."""
        stage = self.stages[-1]
        start = now if stage.steady_start is None else stage.steady_start
        if stage.start != UNDECIDED and stage.steady_end is None:
            self.stages[-1] = replace(stage, steady_start=start, steady_end=max(now, start))

    def stop(self, now: Nanoseconds) -> None:
        """End the run in its current stage. A window that was not over gets no end, because it was shorter than
        planned."""
        self.over = True
        if len(self.stages) > 1 and self.stages[-1].start > now:  # announced, not begun
            del self.stages[-1]
            self.stages[-1] = replace(self.stages[-1], end=now)
        elif self.stages and (stage := self.stages[-1]).end is None and stage.start != UNDECIDED:
            self.stages[-1] = replace(stage, end=max(now, stage.steady_end or stage.steady_start or stage.start))


def _end_warm_up(stage: Stage, now: Nanoseconds, progress: StageProgress) -> Stage:
    plan, load = stage.plan.warm_up, stage.plan.load
    elapsed = now - stage.start
    if isinstance(load, Rate) and plan.unit == "seconds":
        end = stage.start + round(plan.amount * SECOND)
        return replace(stage, steady_start=end) if now >= end else stage
    enough = elapsed >= plan.amount * SECOND if plan.unit == "seconds" else progress.answered >= plan.amount
    planned = load.count if isinstance(load, Users) else progress.users
    unserved = max(planned, progress.users) - progress.served
    longest = max(stage.plan.bound, plan.amount) if plan.unit == "seconds" else stage.plan.bound
    if not (enough and unserved <= 0) and elapsed < longest * SECOND:
        return stage
    return replace(stage, steady_start=now, unserved_users=max(0, unserved))


def _end_window(stage: Stage, start: Nanoseconds, now: Nanoseconds, progress: StageProgress) -> Stage:
    plan = stage.plan.window
    if plan.unit == "seconds":
        end = start + round(plan.amount * SECOND)
        return replace(stage, steady_end=end) if now >= end else stage
    of_a_trace = isinstance(stage.load, Rate) and stage.load.arrivals == TRACE
    complete = progress.played if of_a_trace else progress.scheduled >= plan.amount
    if progress.boundary == start and complete:
        return replace(stage, steady_end=max(start, progress.last_scheduled + 1))
    return stage


def _end_hold(stage: Stage, steady_end: Nanoseconds, now: Nanoseconds, progress: StageProgress) -> Stage:
    if progress.boundary == steady_end and progress.outstanding == 0:
        return replace(stage, end=now)
    if now >= steady_end + stage.plan.bound * SECOND:
        return replace(stage, end=now, unanswered=progress.outstanding)
    return stage
