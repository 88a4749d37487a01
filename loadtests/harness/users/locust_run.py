"""One run in this process: its start, its loop and its end.

A process that plans the run (the only one, or Locust's master) has a `Planner`, one that has users a `LoadGenerator`.
"""

from __future__ import annotations

import logging
import time
from dataclasses import asdict
from math import inf
from time import monotonic_ns

import gevent
from locust.env import Environment
from locust.runners import MasterRunner, WorkerRunner

from enginebench.records.files import META, PLANNER, telemetry_file, write_meta
from loadtests.harness.client.client import Client
from loadtests.harness.live.live_run import INTERVAL, MESSAGE
from loadtests.harness.recording.recorder import Recorder
from loadtests.harness.recording.telemetry_sampler import Scraper, TelemetrySampler
from loadtests.harness.run.run_plan import RunPlan
from loadtests.harness.scenario import Scenario
from loadtests.harness.schedule.control import next_stage
from loadtests.harness.settings.run_settings import RunSettings
from loadtests.harness.users.generator import LoadGenerator
from loadtests.harness.users.planner import POLL, PROGRESS_MESSAGE, Planner
from loadtests.harness.users.run_state import RunState

logger = logging.getLogger(__name__)


class Run(RunState):
    """Begin a run; `end` ends it."""

    def __init__(self, environment: Environment, scenario: Scenario, settings: RunSettings, plan: RunPlan) -> None:
        runner = environment.runner
        assert runner is not None
        super().__init__(scenario, settings, plan, getattr(runner, "worker_index", 0))
        self._runner = runner
        plans, makes_load = not isinstance(runner, WorkerRunner), not isinstance(runner, MasterRunner)
        if not plans and not (self.folder / META).exists():  # a worker on another host
            self.folder.mkdir(parents=True, exist_ok=True)
            write_meta(self.folder, plan.meta)
        Client.forget_closing()
        self.generator = LoadGenerator(self, environment) if makes_load else None
        self._telemetry = TelemetrySampler(
            Recorder(self.folder / telemetry_file(PLANNER if plans else self.worker)),
            self.start,
            Scraper(plan.meta.url, self.access) if plans else None,
            (lambda: int(runner.user_count)) if makes_load else None,
            self.generator.recorder if self.generator is not None else None,
        )
        self.planner = Planner(self, self.generator, runner) if plans else None
        self._reporter: gevent.Greenlet[..., None] | None = None
        if isinstance(runner, WorkerRunner):
            assert self.generator is not None
            for stage in plan.meta.stages or (next_stage(0, plan.meta.plan[0], 0, False),):
                self.generator.enter(stage)
            self._reporter = gevent.spawn(self._report, runner, self.generator)
        self._telemetry.start()

    def end(self) -> None:
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
        """Send the master a worker's progress when it changes, and its counts once a second. If users grow, the counts
        of an answered stage come before the progress that ends it, because they decide the next stage."""
        last, counted, grows = None, -inf, self.scenario.growth() is not None
        while True:
            progress, slices = generator.tracker.progress(), generator.tracker.slices
            changes = slices.changes() if slices is not None else None
            if progress != last or changes is not None:
                if grows and progress.boundary == generator.stage.steady_end and not progress.outstanding:
                    generator.counts.settle_all()
                    runner.send_message(MESSAGE, generator.counts.message())
                runner.send_message(PROGRESS_MESSAGE, {"progress": asdict(progress), "slices": changes})
                last = progress
            if (now := time.monotonic()) - counted >= INTERVAL:
                runner.send_message(MESSAGE, generator.counts.message())
                counted = now
            gevent.sleep(POLL)
