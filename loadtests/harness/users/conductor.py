"""Controls the stages of a run, in the process that plans it: collects reports, decides, and informs the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import gevent
import msgspec
from gevent.event import Event
from locust.runners import MasterRunner, Runner

from enginebench.records.search import SearchRecord
from enginebench.records.stage import SECOND, Nanoseconds, Stage, StagePlan
from loadtests.harness.schedule.control import StageControl, StageProgress, no_other, together
from loadtests.harness.schedule.search.prober import Prober, SearchPlan
from loadtests.harness.schedule.tracker import StageTracker

POLL = 0.05  # seconds; interval of reports from processes that make load, while something changes
IDLE = 0.5  # seconds between two looks where the next boundary is an instant that lies ahead
STAGE_MESSAGE, PROGRESS_MESSAGE = "enginebench_stage", "enginebench_progress"


class Conductor:
    """One for each run, in the planning process. `tracker` is that of this process, if it makes load itself.

    `on_change` is called with all stages whenever a boundary is crossed. `changed` is set when a stage begins or the
    run is over. With `search`, the stages are probes that follow from one another; `following` gives the
    stage after the last one that was planned.
    """

    def __init__(
        self,
        runner: Runner,
        start: Nanoseconds,
        plan: tuple[StagePlan, ...],
        tracker: StageTracker | None,
        on_change: Callable[[tuple[Stage, ...]], None],
        search: SearchPlan | None = None,
        following: Callable[[Nanoseconds], StagePlan | None] = no_other,
    ) -> None:
        self.control = StageControl(plan, following)
        self.control.begin(0)
        self.changed = Event()
        self._wake = Event()
        self._runner = runner
        self._start = start
        self._tracker = tracker
        self._on_change = on_change
        self._reports: dict[str, StageProgress] = {}
        self._prober = Prober(search) if search is not None else None
        self._greenlet: gevent.Greenlet[..., None] | None = None

    def begin(self) -> None:
        """The first stage begins."""
        self._tell()
        self._greenlet = gevent.spawn(self._run)

    @property
    def stage(self) -> Stage:
        assert self.control.current is not None
        return self.control.current

    @property
    def search(self) -> SearchRecord | None:
        """The trail of the search so far."""
        return self._prober.record(ended=self.control.over) if self._prober is not None else None

    def nudge(self) -> None:
        """Check the boundaries now: a request was scheduled or has ended in this process."""
        self._wake.set()

    def take_report(self, worker: str, report: Mapping[str, Any]) -> None:
        self._reports[worker] = msgspec.convert(report["progress"], StageProgress)
        if self._prober is not None and report["slices"] is not None:
            self._prober.take(worker, report["slices"])
        self._wake.set()

    def stop(self, now: Nanoseconds, as_planned: bool = False) -> None:
        """End the run here: before the end of its plan, unless it is `as_planned` that it runs until it is stopped."""
        if self._greenlet is not None:
            gevent.kill(self._greenlet)
        if not self.control.over:
            if as_planned:
                self.control.end_window(now)
            self.control.stop(now)
            self._tell()

    def _run(self) -> None:
        while not self.control.over:
            now = time.monotonic_ns() - self._start
            progress = self._progress()
            if self._prober is not None:
                self._follow_search(self._prober, now, progress)
            if self.control.update(now, progress):
                self._tell()
                continue
            boundary, longest = self.control.next_boundary(), POLL if self._prober is not None else IDLE
            left = POLL if boundary is None or boundary <= now else min(longest, (boundary - now) / SECOND)
            self._wake.wait(left)
            self._wake.clear()

    def _follow_search(self, prober: Prober, now: Nanoseconds, progress: StageProgress) -> None:
        """End the probe if the search has decided it, and plan the next."""
        if self._tracker is not None and self._tracker.slices is not None:
            changes = self._tracker.slices.changes()
            if changes is not None:
                prober.take("", changes)
        stage = self.stage
        answered = stage.steady_end is not None and progress.known == stage.steady_end and progress.outstanding == 0
        if prober.look(now, stage, last=answered) is None and not prober.stopped:
            return
        following = prober.next_stage()
        if following is not None:
            self.control.plan.append(following)
        self.control.end_window(now)
        self._tell()

    def _progress(self) -> StageProgress:
        if self._tracker is not None:
            return self._tracker.progress()
        assert isinstance(self._runner, MasterRunner)
        clients = self._runner.clients
        workers = [client.id for client in (*clients.ready, *clients.spawning, *clients.running)]
        return together([self._reports.get(worker, StageProgress(-1, 0)) for worker in workers])

    def _tell(self) -> None:
        stage = self.stage
        if self._prober is not None:
            self._prober.enter(stage)
        if self._tracker is not None:
            self._tracker.enter(stage)
        if isinstance(self._runner, MasterRunner):
            message = {"stage": msgspec.to_builtins(stage), "over": self.control.over}
            self._runner.send_message(STAGE_MESSAGE, message)
        self._on_change(self.control.begun)
        if stage.steady_start is None or self.control.over:
            self.changed.set()
