"""The planning process's part of a run: it decides when stages begin and end, informs the workers, writes the journal,
and keeps the live view up to date."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from time import monotonic_ns
from typing import Any

import gevent
import msgspec
from gevent.event import Event
from locust.runners import MasterRunner, Runner

from enginebench.records.files import JOURNAL, close_journal
from enginebench.records.run import JournalLine
from enginebench.records.search import SearchRecord
from enginebench.records.stage import SECOND, Nanoseconds, Stage, StagePlan, changed
from loadtests.harness.live.live_run import LiveRun
from loadtests.harness.recording.recorder import Recorder
from loadtests.harness.run.options import GROWS_SINCE
from loadtests.harness.schedule.control import StageControl, StageProgress, together
from loadtests.harness.schedule.growth import STARTING
from loadtests.harness.schedule.search.prober import Prober
from loadtests.harness.users.generator import LoadGenerator
from loadtests.harness.users.lost_workers import LostWorkers
from loadtests.harness.users.run_state import RunState
from loadtests.harness.users.timed_command import TimedCommand

logger = logging.getLogger(__name__)

POLL = 0.05  # seconds between two progress reports of a process that makes load, while something changes
IDLE = 0.5  # seconds between two checks if the next boundary is a known instant
STAGE_MESSAGE, PROGRESS_MESSAGE = "enginebench_stage", "enginebench_progress"


class Planner:
    """Begin the first stage. `generator` is this process's, if it makes load itself; only Locust's master can lose
    workers.

    `changed` is set when a stage begins or the run is over. In a search, each stage is a probe that depends on the
    earlier ones.
    """

    def __init__(self, run: RunState, generator: LoadGenerator | None, runner: Runner) -> None:
        search = run.scenario.search_plan()
        self.changed = Event()
        self.control = StageControl(run.plan.meta.plan, self._stage_of_growth)
        self.control.begin(0)
        own = generator.counts if generator is not None else None
        self.live = LiveRun(run.folder, run.start, run.metrics, own, lambda: run.meta, lambda: int(runner.user_count))
        self._run, self._generator, self._runner = run, generator, runner
        self._journal = Recorder(run.folder / JOURNAL)
        self._prober = Prober(search) if search is not None else None
        self._reports: dict[str, StageProgress] = {}
        self._wake = Event()
        if generator is not None:
            generator.wake_planner = self._wake.set
        self._announce()
        self._background = [gevent.spawn(self._follow_stages)]
        self._lost_workers = LostWorkers(run, runner) if isinstance(runner, MasterRunner) else None
        if self._lost_workers is not None:
            self._background.append(gevent.spawn(self._lost_workers.watch))
        self._command: TimedCommand | None = None
        if run.scenario.command is not None:
            self._command = TimedCommand(
                run.scenario.command,
                run.start,
                lambda: self.control.stages[0],
                lambda event: self._note(JournalLine(event=event)),
                run.folder,
            )

    @property
    def stage(self) -> Stage:
        assert self.control.current is not None
        return self.control.current

    @property
    def search(self) -> SearchRecord | None:
        return self._prober.record(ended=self.control.over) if self._prober is not None else None

    @property
    def workers(self) -> tuple[str, ...]:
        """Return the ids of the workers that began the run and were not lost."""
        return () if self._lost_workers is None else self._lost_workers.remaining

    def take_progress(self, worker: str, report: Mapping[str, Any]) -> None:
        self._reports[worker] = msgspec.convert(report["progress"], StageProgress)
        if self._prober is not None and report["slices"] is not None:
            self._prober.take(worker, report["slices"])
        self._wake.set()

    def take_counts(self, worker: str, counts: Mapping[str, Any]) -> None:
        self.live.take(worker, counts)
        if self._lost_workers is not None:
            self._lost_workers.note_message(worker)

    def end_stages(self, now: Nanoseconds) -> None:
        """End the current stage, unless the plan is over."""
        gevent.killall(self._background)
        if self._lost_workers is not None:
            self._lost_workers.finish()
        if not self.control.over:
            self.control.stop(now)
            self._announce()
        if self._command is not None:
            self._command.stop()

    def close_journal(self) -> None:
        self._journal.close()
        try:
            close_journal(self._run.folder, replace(self._run.meta, plan=tuple(self.control.plan)))
        except OSError as error:
            folder = self._run.folder
            logger.error("Cannot write meta.json in %s (%s): its stages are in %s.", folder, error, JOURNAL)

    def _follow_stages(self) -> None:
        """Cross each boundary when its time has come or a process reports something that it depends on."""
        while not self.control.over:
            now, progress = monotonic_ns() - self._run.start, self._progress()
            if self._prober is not None:
                self._follow_search(self._prober, now, progress)
            if self.control.update(now, progress):
                self._announce()
                continue
            boundary, longest = self.control.next_boundary(), POLL if self._prober is not None else IDLE
            left = POLL if boundary is None or boundary <= now else min(longest, (boundary - now) / SECOND)
            self._wake.wait(left)
            self._wake.clear()

    def _follow_search(self, prober: Prober, now: Nanoseconds, progress: StageProgress) -> None:
        """End the probe if the search has decided it, and plan the next."""
        slices = self._generator.tracker.slices if self._generator is not None else None
        changes = slices.changes() if slices is not None else None
        if changes is not None:
            prober.take("", changes)
        stage = self.stage
        answered = stage.steady_end is not None and progress.boundary == stage.steady_end and progress.outstanding == 0
        if prober.look(now, stage, last=answered) is None and not prober.stopped:
            return
        following = prober.next_stage()
        if following is not None:
            self.control.plan.append(following)
        if stage.start <= now:
            self.control.end_window(now)
        if prober.stopped:  # out of time: a slow server's answers are not waited for
            self.control.stop(now)
        self._announce()

    def _progress(self) -> StageProgress:
        """Add up the progress of all processes."""
        if self._generator is not None:
            return self._generator.tracker.progress()
        assert isinstance(self._runner, MasterRunner)
        clients = self._runner.clients
        workers = [client.id for client in (*clients.ready, *clients.spawning, *clients.running)]
        return together([self._reports.get(worker, StageProgress(-1, 0)) for worker in workers])

    def _announce(self) -> None:
        """Tell every part of the run that a boundary was crossed, and note it in the journal."""
        run, stage, begun, over = self._run, self.stage, self.control.begun, self.control.over
        if self._prober is not None:
            self._prober.enter(stage)
        if self._generator is not None:
            self._generator.tracker.enter(stage)
        if isinstance(self._runner, MasterRunner):
            self._runner.send_message(STAGE_MESSAGE, {"stage": msgspec.to_builtins(stage), "over": over})
        for changed_stage in changed(run.meta.stages, begun):
            self._note(JournalLine(stage=changed_stage))
        search = self.search
        if search != run.meta.search:
            self._note(JournalLine(search=search))
        if self._generator is not None:
            for recent in begun[-2:]:
                self._generator.counts.enter(recent)
        run.over = over
        if stage.steady_start is None or over:
            self.changed.set()

    def _stage_of_growth(self, now: Nanoseconds) -> StagePlan | None:
        """Plan the stage after the last planned one from the results so far, if the scenario's users grow."""
        run, growth = self._run, self._run.scenario.growth()
        if growth is None:
            return None
        if self._generator is not None:
            self._generator.counts.settle_all()
        self.live.publish()
        before = (run.start - int(os.environ.get(GROWS_SINCE, run.start))) / SECOND
        return growth.following(self.live.document.stages, min(before, STARTING * growth.seconds) + now / SECOND)

    def _note(self, line: JournalLine) -> None:
        """Write a line to the journal at once: a killed process keeps the stages so far."""
        self._run.meta = self._run.meta.after(line)
        self._journal.write(line)
