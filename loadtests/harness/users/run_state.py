"""The state that all parts of a run share in this process: plan, clock, folder and metadata."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from enginebench.records.files import requests_file, telemetry_file
from enginebench.records.load import TRACE, Rate
from enginebench.records.slo import RunObjectives
from enginebench.records.stage import Stage
from loadtests.harness.live.buckets import CountedMetrics
from loadtests.harness.run.run_plan import RunPlan
from loadtests.harness.scenario import Scenario
from loadtests.harness.schedule.rates import arrival_times
from loadtests.harness.settings.run_settings import RunSettings


class RunState:
    """Only the planning process keeps `meta` up to date. `over` is true once the last stage has ended. `worker` is the
    index of this process; Locust's master has index 0 and writes no requests."""

    def __init__(self, scenario: Scenario, settings: RunSettings, plan: RunPlan, worker: int) -> None:
        self.scenario, self.settings, self.plan, self.meta, self.worker = scenario, settings, plan, plan.meta, worker
        self.access = settings.access(plan.meta.url, scenario.endpoint, with_keys=plan.with_keys)
        self.start = plan.start_here()
        self.folder = plan.folder_here(settings.runs)
        self.trace = scenario.played()
        self.over = False
        self.metrics = CountedMetrics(RunObjectives.from_workload(plan.meta.workload))

    @property
    def traced(self) -> str:
        """Return the text from which the ids of this run's traces are made; empty without `--otel`."""
        return f"{self.plan.meta.run_id}/{self.plan.start_wall}" if self.settings.opentelemetry else ""

    @property
    def files(self) -> tuple[Path, ...]:
        """Return the files that only this process writes, in a run of several processes."""
        paths = (self.folder / name for name in (requests_file(self.worker), telemetry_file(self.worker)))
        return tuple(path for path in paths if path.exists())

    def arrival_times(self, stage: Stage) -> Iterator[float]:
        """Yield the seconds from the start of an open stage to each of its arrivals, over all processes."""
        load, plan = stage.load, stage.plan
        assert isinstance(load, Rate)
        if load.arrivals == TRACE:
            assert self.trace is not None
            return iter(self.trace.times)
        warm_up, window = (part.amount if part.unit == "seconds" else 0.0 for part in (plan.warm_up, plan.window))
        return arrival_times(load, warm_up, window, self.plan.workload.seed, stage.index)
