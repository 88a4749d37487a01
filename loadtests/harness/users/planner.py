"""The part of the planning process: it decides on the stages, keeps the journal, and shows the run as it goes on."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import gevent
from locust.env import Environment
from locust.runners import MasterRunner

from enginebench.records.files import JOURNAL, close_journal
from enginebench.records.run import JournalLine, RunEvent
from enginebench.records.stage import SECOND, Nanoseconds, Stage, StagePlan, changed
from loadtests.harness.live.live_run import LiveRun
from loadtests.harness.recording.recorder import Recorder
from loadtests.harness.run.options import GROWS_SINCE
from loadtests.harness.run.plan import RunPlan
from loadtests.harness.schedule.growth import STARTING
from loadtests.harness.users.conductor import Conductor
from loadtests.harness.users.load_generator import LoadGenerator
from loadtests.harness.users.lost_workers import LostWorkers
from loadtests.harness.users.timed_command import TimedCommand

if TYPE_CHECKING:
    from loadtests.harness.users.run import Run

logger = logging.getLogger(__name__)


class Planner:
    """`generator` is that of this process, if it makes load itself; only Locust's master has `lost_workers`."""

    def __init__(self, run: Run, generator: LoadGenerator | None, environment: Environment) -> None:
        runner = environment.runner
        assert runner is not None
        self._run, self._generator = run, generator
        self._ends_when_stopped = environment.shape_class is None
        self._journal = Recorder(run.folder / JOURNAL)
        own = generator.counts if generator is not None else None
        self.live = LiveRun(run.folder, run.start, run.metrics, own, lambda: run.meta, lambda: int(runner.user_count))
        self.conductor = Conductor(
            runner,
            run.start,
            run.plan.meta.plan,
            generator.tracker if generator is not None else None,
            self._stages_changed,
            run.scenario.search_plan(),
            self._following,
        )
        self.lost_workers = LostWorkers(run, runner) if isinstance(runner, MasterRunner) else None
        self._background: list[gevent.Greenlet[..., None]] = []
        self._command: TimedCommand | None = None

    def begin(self) -> None:
        run, control = self._run, self.conductor.control
        self.conductor.begin()
        if self.lost_workers is not None:
            self._background = [gevent.spawn(self.lost_workers.watch)]
        if run.scenario.command is not None:
            self._command = TimedCommand(
                run.scenario.command,
                run.start,
                lambda: control.stages[0],
                self._happened,
                run.folder,
            )

    def end_stages(self, now: Nanoseconds) -> None:
        """The run ends: where it is in its plan, unless that is over."""
        if self.lost_workers is not None:
            self.lost_workers.finish(self._run.over)
        self.conductor.stop(now, self._ends_when_stopped)
        if self._command is not None:
            self._command.stop()
        gevent.killall(self._background)

    def close_journal(self) -> None:
        self._journal.close()
        try:
            close_journal(self._run.folder, replace(self._run.meta, plan=tuple(self.conductor.control.plan)))
        except OSError as error:
            folder = self._run.folder
            logger.error("Cannot write meta.json in %s (%s): its stages are in %s.", folder, error, JOURNAL)

    @property
    def current_plan(self) -> RunPlan:
        """The plan with the stages so far, for workers that join late."""
        return replace(self._run.plan, meta=self._run.meta)

    def _stages_changed(self, stages: tuple[Stage, ...]) -> None:
        for stage in changed(self._run.meta.stages, stages):
            self._note(JournalLine(stage=stage))
        search = self.conductor.search
        if search != self._run.meta.search:
            self._note(JournalLine(search=search))
        if self._generator is not None:
            for stage in stages[-2:]:
                self._generator.counts.enter(stage)
        self._run.over = self.conductor.control.over

    def _following(self, now: Nanoseconds) -> StagePlan | None:
        """The stage after the last one that was planned, if users grow by what the stages so far have shown."""
        run = self._run
        growth = run.scenario.growth()
        if growth is None:
            return None
        if self._generator is not None:
            self._generator.counts.settle_all()
        self.live.publish()
        before = (run.start - int(os.environ.get(GROWS_SINCE, run.start))) / SECOND
        return growth.following(self.live.document.stages, min(before, STARTING * growth.seconds) + now / SECOND)

    def _happened(self, event: RunEvent) -> None:
        self._note(JournalLine(event=event))

    def _note(self, line: JournalLine) -> None:
        """To a file that is open: whatever becomes of this process, the stages so far are known."""
        self._run.meta = self._run.meta.after(line)
        self._journal.write(line)
