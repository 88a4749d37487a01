"""One run in this process: its start, its loop and its end, and what all its parts share.

A process that plans the run (the only one, or Locust's master) has a `Planner`, one that has users a `LoadGenerator`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import asdict
from math import inf
from pathlib import Path
from time import monotonic_ns

import gevent
from locust.env import Environment
from locust.runners import MasterRunner, WorkerRunner

from enginebench.records.files import write_meta
from enginebench.records.load import TRACE, Rate
from enginebench.records.slo import RunObjectives
from enginebench.records.stage import Stage
from loadtests.harness.client.client import Client
from loadtests.harness.live.buckets import CountedMetrics
from loadtests.harness.live.live_run import INTERVAL, MESSAGE
from loadtests.harness.recording.recorder import Recorder
from loadtests.harness.recording.telemetry import Scraper, TelemetrySampler
from loadtests.harness.run.plan import RunPlan
from loadtests.harness.scenario import Scenario
from loadtests.harness.schedule.control import next_stage
from loadtests.harness.schedule.rates import arrival_times
from loadtests.harness.settings.run import RunSettings
from loadtests.harness.users.conductor import POLL, PROGRESS_MESSAGE
from loadtests.harness.users.load_generator import MAX_SPREAD, LoadGenerator
from loadtests.harness.users.lost_workers import introduce
from loadtests.harness.users.planner import Planner

logger = logging.getLogger(__name__)


class Run:
    """Begin a run; `end` ends it.

    `meta` is the run's own as far as it is known here: only the planning process keeps it up to date. `over` is true
    once the last stage has ended. `worker` is the index of this process; a master has none and writes no records.
    """

    def __init__(self, environment: Environment, scenario: Scenario, settings: RunSettings, plan: RunPlan) -> None:
        runner = environment.runner
        assert runner is not None
        self.scenario, self.settings, self.plan, self.meta = scenario, settings, plan, plan.meta
        self.worker: int = getattr(runner, "worker_index", 0)
        self.access = settings.access(plan.meta.url, scenario.endpoint, with_keys=plan.with_keys)
        self.start = plan.start_here()
        self.folder = plan.folder_here(settings.runs)
        self.trace = scenario.played()
        self.over = False
        self.metrics = CountedMetrics(RunObjectives.of(plan.meta.workload))
        self._runner = runner
        plans, makes_load = not isinstance(runner, WorkerRunner), not isinstance(runner, MasterRunner)
        if not plans and not (self.folder / "meta.json").exists():  # a worker on another host
            self.folder.mkdir(parents=True, exist_ok=True)
            write_meta(self.folder, plan.meta)
        Client.forget_closing()
        self.generator = LoadGenerator(self, environment) if makes_load else None
        self._telemetry = TelemetrySampler(
            Recorder(self.folder / ("telemetry.jsonl" if plans else f"telemetry-{self.worker}.jsonl")),
            self.start,
            Scraper(plan.meta.url, self.access) if plans else None,
            (lambda: int(runner.user_count)) if makes_load else None,
            self.generator.recorder if self.generator is not None else None,
        )
        self.planner = Planner(self, self.generator, environment) if plans else None
        self._reporter: gevent.Greenlet[..., None] | None = None
        if self.generator is not None:
            self.generator.begin(self.planner.conductor.nudge if self.planner is not None else None)
        if self.planner is not None:
            self.planner.begin()
        elif self.generator is not None:
            assert isinstance(runner, WorkerRunner)
            for stage in plan.meta.stages or (next_stage(0, plan.meta.plan[0], 0, False),):
                self.generator.enter(stage)
            self._reporter = gevent.spawn(self._report, runner, self.generator)
            introduce(runner)
        self._telemetry.start()

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that this process alone writes, if the run has several processes."""
        return tuple(sorted(self.folder.glob(f"*-{self.worker}.jsonl")))

    def arrival_times(self, stage: Stage) -> Iterator[float]:
        """Return the seconds from the start of an open stage to each of its arrivals, those of all processes."""
        load, plan = stage.load, stage.plan
        assert isinstance(load, Rate)
        if load.arrivals == TRACE:
            assert self.trace is not None
            return iter(self.trace.times)
        warm_up, window = (part.amount if part.unit == "seconds" else 0.0 for part in (plan.warm_up, plan.window))
        return arrival_times(load, warm_up, window, self.plan.workload.seed, stage.index)

    def first_request_due(self, stage: Stage) -> float:
        """Return the seconds from the start of the first stage until its first request is due at the latest."""
        return next(self.arrival_times(stage), inf) if isinstance(stage.load, Rate) else MAX_SPREAD

    @property
    def sending(self) -> bool:
        """Whether a request was due, in this process or in a worker of it."""
        here = self.generator is not None and self.generator.requests > 0
        return here or (self.planner is not None and self.planner.live.scheduled > 0)

    def enter(self, stage: Stage, over: bool) -> None:
        """The master reports that a boundary was crossed."""
        assert self.generator is not None
        self.generator.enter(stage)
        self.over = over

    def end(self) -> None:
        """Every file is complete when this returns."""
        if self.planner is not None:
            self.planner.end_stages(monotonic_ns() - self.start)
        if self._reporter is not None:
            gevent.kill(self._reporter)
        if self.generator is not None:
            self.generator.settle()
            if isinstance(self._runner, WorkerRunner):
                self._runner.send_message(MESSAGE, self.generator.counts.message())
        if self.planner is not None:
            self.planner.live.finish()
        if self.generator is not None:
            self.generator.recorder.close()
        self._telemetry.stop()
        if self.planner is not None:
            self.planner.close_journal()
            logger.info("This run is in %s", self.folder)

    def _report(self, runner: WorkerRunner, generator: LoadGenerator) -> None:
        """The loop of a worker: its progress as it changes, its counts once a second."""
        last, counted = None, -inf
        while True:
            progress, slices = generator.tracker.progress(), generator.tracker.slices
            changes = slices.changes() if slices is not None else None
            if progress != last or changes is not None:
                runner.send_message(PROGRESS_MESSAGE, {"progress": asdict(progress), "slices": changes})
                last = progress
            if (now := time.monotonic()) - counted >= INTERVAL:
                runner.send_message(MESSAGE, generator.counts.message())
                counted = now
            gevent.sleep(POLL)
