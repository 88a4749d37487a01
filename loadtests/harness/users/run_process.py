"""This process's part in the current run."""

from __future__ import annotations

import logging
import os
import statistics
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, replace
from math import inf
from pathlib import Path
from time import monotonic_ns

import gevent
from locust.env import Environment
from locust.runners import MasterRunner, WorkerRunner

from enginebench.records.files import JOURNAL, close_journal, write_meta
from enginebench.records.load import TRACE, Rate
from enginebench.records.metrics import BY_NAME
from enginebench.records.request import RequestRecord, SentRecord
from enginebench.records.run import JournalLine, LostProcess, RunEvent
from enginebench.records.slo import RunObjectives
from enginebench.records.stage import SECOND, Nanoseconds, Stage, StagePlan, changed
from loadtests.harness.client.call import Call
from loadtests.harness.client.client import Client
from loadtests.harness.event_loop import yield_to_io
from loadtests.harness.live.buckets import CountedMetrics
from loadtests.harness.live.counts import LiveCounts
from loadtests.harness.live.live_run import INTERVAL, MESSAGE, LiveRun
from loadtests.harness.recording.recorder import Recorder
from loadtests.harness.recording.telemetry import Scraper, TelemetrySampler
from loadtests.harness.run.options import DEFAULT_STOP_TIMEOUT, GROWS_SINCE
from loadtests.harness.run.plan import RunPlan
from loadtests.harness.scenario import Scenario
from loadtests.harness.schedule.control import next_stage
from loadtests.harness.schedule.growth import STARTING
from loadtests.harness.schedule.rates import arrival_times
from loadtests.harness.schedule.tracker import StageTracker
from loadtests.harness.settings.run import RunSettings
from loadtests.harness.users.build_ahead import BuildAhead
from loadtests.harness.users.conductor import POLL, PROGRESS_MESSAGE, Conductor
from loadtests.harness.users.failure_watch import FailureWatch
from loadtests.harness.users.locust_statistics import LocustStatistics
from loadtests.harness.users.lost_workers import LostWorkers, introduce
from loadtests.harness.users.timed_command import TimedCommand, complete

logger = logging.getLogger(__name__)

RECENT_ANSWERS = 200
COUNTED = 0.25  # seconds between two times at which requests are counted
LEAST_SPREAD, MOST_SPREAD = 1.0, 60.0  # seconds


class RunProcess:
    """Gives users their numbers, and records what they observed.

    The planning process has a `conductor`; a process with users has a `tracker`, a recorder, and reports to the master.
    """

    def __init__(self, environment: Environment, scenario: Scenario, settings: RunSettings, plan: RunPlan) -> None:
        runner = environment.runner
        assert runner is not None
        self.scenario, self.settings, self.plan, self._runner = scenario, settings, plan, runner
        self.access = settings.access(plan.meta.url, scenario.endpoint, with_keys=plan.with_keys)
        self.start = plan.start_here()
        self.trace = scenario.played()
        self.over = False
        self.dispatching = False
        """Whether this process's share of an open loop's arrivals is being sent."""
        Client.forget_closing()
        self.folder = plan.folder_here(settings.runs)
        self._worker = getattr(runner, "worker_index", 0)  # a master has none and writes no records
        metrics = CountedMetrics(RunObjectives.of(plan.meta.workload))
        self._counts = LiveCounts(metrics)
        self._users = 0
        self._requests = 0
        self._answer_seconds: deque[float] = deque(maxlen=RECENT_ANSWERS)
        self._meta = plan.meta
        self._statistics = LocustStatistics(environment)
        self._watch = FailureWatch(environment, settings.keep_going)
        self._ends_when_stopped = environment.shape_class is None

        plans, makes_load = not isinstance(runner, WorkerRunner), not isinstance(runner, MasterRunner)
        if not plans and not (self.folder / "meta.json").exists():  # a worker on another host
            self.folder.mkdir(parents=True, exist_ok=True)
            write_meta(self.folder, plan.meta)
        self.rows = plan.workload.rows_of(self._worker % plan.meta.workers, plan.meta.workers, self.folder)
        search = scenario.search_plan()
        self.tracker = StageTracker(search.objectives if search else ()) if makes_load else None
        self._recorder = Recorder(self.folder / f"requests-{self._worker}.jsonl") if makes_load else None
        self._journal = Recorder(self.folder / JOURNAL) if plans else None
        self._telemetry = TelemetrySampler(
            Recorder(self.folder / ("telemetry.jsonl" if plans else f"telemetry-{self._worker}.jsonl")),
            self.start,
            Scraper(plan.meta.url, self.access) if plans else None,
            (lambda: int(runner.user_count)) if makes_load else None,
            self._recorder,
        )
        self.live: LiveRun | None = None
        if plans:
            own = self._counts if makes_load else None
            self.live = LiveRun(
                self.folder, self.start, metrics, own, lambda: self._meta, lambda: int(runner.user_count)
            )
        self.conductor: Conductor | None = None
        self.ahead = BuildAhead()
        loops = (self._count_ended, self.ahead.run) if makes_load else ()
        self._background: list[gevent.Greenlet[..., None]] = [gevent.spawn(loop) for loop in loops]
        if plans:
            self.conductor = Conductor(
                *(runner, self.start, plan.meta.plan, self.tracker, self._stages_changed, search), self._following
            )
        elif self.tracker is not None:
            for stage in plan.meta.stages or (next_stage(0, plan.meta.plan[0], 0, False),):
                self._enter(stage)
            assert isinstance(runner, WorkerRunner)
            self._background += [gevent.spawn(self._report, runner), gevent.spawn(self._report_counts, runner)]
        self.lost_workers: LostWorkers | None = None
        if isinstance(runner, MasterRunner):
            processes, stages = plan.meta.workers, lambda: self.stages
            self.lost_workers = LostWorkers(
                *(runner, processes, self.start, self.folder, stages, self.arrival_times, self._lose)
            )
            self._background.append(gevent.spawn(self.lost_workers.watch))
        elif isinstance(runner, WorkerRunner):
            introduce(runner)
        self._telemetry.start()
        self._timed_command: TimedCommand | None = None
        if self.conductor is not None and scenario.command is not None:
            control = self.conductor.control
            self._timed_command = TimedCommand(
                complete(scenario.command),
                scenario.at,
                self.start,
                lambda: control.stages[0],
                self._happened,
                self.folder,
            )

    # What users call.

    def next_user(self) -> int:
        """A number that no other user of the run has; over all workers they run from 0 without gaps."""
        local, self._users = self._users, self._users + 1
        workers = self.plan.meta.workers
        if self._worker < workers:
            return local * workers + self._worker
        return 1_000_000 * self._worker + local  # a worker that joined after the plan was made

    @property
    def stage(self) -> Stage:
        """The current stage."""
        assert self.tracker is not None, "Locust's master has no users"
        assert self.tracker.stage is not None
        return self.tracker.stage

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Those that have begun."""
        return self._meta.stages

    @property
    def lost(self) -> tuple[LostProcess, ...]:
        """Worker processes that ended before the run."""
        return self._meta.lost

    @property
    def share(self) -> tuple[int, int] | None:
        """Which of how many processes this one is; `None` where it joined after the arrivals were shared out."""
        workers = self.plan.meta.workers
        return (self._worker, workers) if self._worker < workers else None

    def arrival_times(self, stage: Stage) -> Iterator[float]:
        """Seconds from the start of an open stage to each of its arrivals, those of all processes."""
        load, plan = stage.load, stage.plan
        assert isinstance(load, Rate)
        if load.arrivals == TRACE:
            assert self.trace is not None
            return iter(self.trace.times)
        warm_up, window = (part.amount if part.unit == "seconds" else 0.0 for part in (plan.warm_up, plan.window))
        return arrival_times(load, warm_up, window, self.plan.workload.seed, stage.index)

    def start_spread(self) -> float:
        """Seconds over which new users begin: as long as an answer takes, so that they do not send in step."""
        if self._answer_seconds:
            seconds = statistics.median(self._answer_seconds)
        else:
            warm_up = self.stage.plan.warm_up
            seconds = warm_up.amount if warm_up.unit == "seconds" else 0.0
        return min(max(seconds, LEAST_SPREAD), MOST_SPREAD)

    def request_scheduled(self, record: RequestRecord, t_sched: int, stage: Stage, user: int | None) -> None:
        """A request is about to be sent; `t_sched` is absolute. Its record gets what was not known when it was
        planned."""
        assert self.tracker is not None
        self._requests += 1
        record.request_id, record.worker = f"{self._worker}-{self._requests}", str(self._worker)
        record.scenario, record.stage, record.user = self.plan.meta.scenario, stage.index, user
        record.t_sched = t_sched - self.start
        self._counts.request_scheduled()
        self.tracker.request_scheduled(record)
        self._nudge()

    def announce(self, record: RequestRecord) -> None:
        """Record that a request is about to be sent: if this process is killed, this line is its only trace."""
        assert self._recorder is not None
        self._recorder.write(
            SentRecord(
                request_id=record.request_id,
                worker=record.worker,
                stage=record.stage,
                t_sched=record.t_sched,
                t_send=monotonic_ns() - self.start,
            )
        )

    def request_ended(self, call: Call, record: RequestRecord, answer_bytes: int) -> None:
        """`record` is complete: write and count it."""
        assert self._recorder is not None
        assert self.tracker is not None
        self._recorder.write(record)
        self.tracker.request_ended(record)
        self._counts.request_ended(record)
        self._watch.request_ended(record)
        self._statistics.request_ended(call.path, record, answer_bytes)
        seconds = BY_NAME["e2e"].of(record)
        if seconds is not None and record.outcome == "ok":
            self._answer_seconds.append(seconds)
        self._nudge()

    @property
    def sending(self) -> bool:
        """Whether a request was due, in this process or in a worker of it."""
        return self._requests > 0 or (self.live is not None and self.live.scheduled > 0)

    def first_request_due(self) -> float:
        """Seconds from the run's start until its first request is due at the latest; asked of the planning process."""
        assert self.conductor is not None
        stage = self.conductor.stage
        if isinstance(stage.load, Rate):
            return next(self.arrival_times(stage), inf)
        return MOST_SPREAD

    # The stages.

    def enter(self, stage: Stage, over: bool) -> None:
        """Called when the master reports that a boundary was crossed."""
        self._enter(stage)
        self.over = over

    def _enter(self, stage: Stage) -> None:
        assert self.tracker is not None
        self.tracker.enter(stage)
        if self.share is None:  # the next stage does not wait for its arrivals
            self.tracker.ready = self.tracker.played = True
        self._counts.enter(stage)

    def drain_limit(self) -> float:
        """Seconds that requests in flight get after the last stage."""
        return self.plan.grace or DEFAULT_STOP_TIMEOUT

    def current_plan(self) -> RunPlan:
        """The plan with the stages so far, for workers that join late."""
        return replace(self.plan, meta=self._meta)

    @property
    def files(self) -> tuple[Path, ...]:
        """What this process alone writes, where the run has several."""
        return tuple(sorted(self.folder.glob(f"*-{self._worker}.jsonl")))

    def close(self) -> None:
        now = monotonic_ns() - self.start
        if self.lost_workers is not None:
            self.lost_workers.finish(self.over)
        if self.conductor is not None:
            self.conductor.stop(now, self._ends_when_stopped)
        if self._timed_command is not None:
            self._timed_command.stop()
        gevent.killall(self._background)
        self._statistics.close()
        self._counts.settle_all()
        if self.rows is not None:
            self.rows.close()
        if isinstance(self._runner, WorkerRunner):
            self._runner.send_message(MESSAGE, self._counts.message())
        if self.live is not None:
            self.live.finish()
        if self._recorder is not None:
            self._recorder.close()
        self._telemetry.stop()
        if self._journal is not None:
            self._close_journal(self._journal)
        if self.conductor is not None:
            logger.info("This run is in %s", self.folder)

    def _stages_changed(self, stages: tuple[Stage, ...]) -> None:
        for stage in changed(self._meta.stages, stages):
            self._note(JournalLine(stage=stage))
        search = self.conductor.search if self.conductor is not None else None
        if search != self._meta.search:
            self._note(JournalLine(search=search))
        for stage in stages[-2:]:
            self._counts.enter(stage)
        self.over = self.conductor is not None and self.conductor.control.over

    def _following(self, now: Nanoseconds) -> StagePlan | None:
        """The stage after the last one that was planned, where users grow by what the stages so far have shown."""
        growth = self.scenario.growth()
        if growth is None:
            return None
        assert self.live is not None
        self._counts.settle_all()
        self.live.publish()
        before = (self.start - int(os.environ.get(GROWS_SINCE, self.start))) / SECOND
        return growth.following(self.live.document.stages, min(before, STARTING * growth.seconds) + now / SECOND)

    def _lose(self, lost: tuple[LostProcess, ...]) -> None:
        self._meta = replace(self._meta, lost=lost)

    def _happened(self, event: RunEvent) -> None:
        self._note(JournalLine(event=event))

    def _note(self, line: JournalLine) -> None:
        """To a file that is open: whatever becomes of this process, the stages so far are known."""
        assert self._journal is not None
        self._meta = self._meta.after(line)
        self._journal.write(line)

    def _close_journal(self, journal: Recorder) -> None:
        assert self.conductor is not None
        journal.close()
        try:
            close_journal(self.folder, replace(self._meta, plan=tuple(self.conductor.control.plan)))
        except OSError as error:
            logger.error("Cannot write meta.json in %s (%s): its stages are in %s.", self.folder, error, JOURNAL)

    def _nudge(self) -> None:
        if self.conductor is not None and self.tracker is not None and self.tracker.waits_for_requests:
            self.conductor.nudge()

    def _count_ended(self) -> None:
        """Many requests at a time: to count one at the moment in which another ends takes twice the CPU time, and
        delays what is due."""
        while True:
            while self._counts.settle(monotonic_ns() - self.start) | self._statistics.enter():
                yield_to_io()
            gevent.sleep(COUNTED)

    def _report_counts(self, runner: WorkerRunner) -> None:
        while True:
            runner.send_message(MESSAGE, self._counts.message())
            gevent.sleep(INTERVAL)

    def _report(self, runner: WorkerRunner) -> None:
        last = None
        while True:
            assert self.tracker is not None
            progress, slices = self.tracker.progress(), self.tracker.slices
            changes = slices.changes() if slices is not None else None
            if progress != last or changes is not None:
                runner.send_message(PROGRESS_MESSAGE, {"progress": asdict(progress), "slices": changes})
                last = progress
            gevent.sleep(POLL)
