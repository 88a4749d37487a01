"""What all parts of a run share in this process: its plan, its clock, its folder, and how far it is."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from pathlib import Path

from enginebench.records.load import TRACE, Rate
from enginebench.records.slo import RunObjectives
from enginebench.records.stage import Stage
from loadtests.harness.live.buckets import CountedMetrics
from loadtests.harness.run.run_plan import RunPlan
from loadtests.harness.scenario import Scenario
from loadtests.harness.schedule.rates import arrival_times
from loadtests.harness.settings.run_settings import RunSettings

MAX_SPREAD = 60.0  # seconds over which the first requests of new users are spread at most


class RunFacts:
    """`meta` is the run's own as far as it is known here: only the planning process keeps it up to date. `over` is true
    once the last stage has ended. `worker` is the index of this process; a master has none and writes no records."""

    def __init__(self, scenario: Scenario, settings: RunSettings, plan: RunPlan, worker: int) -> None:
        self.scenario, self.settings, self.plan, self.meta, self.worker = scenario, settings, plan, plan.meta, worker
        self.access = settings.access(plan.meta.url, scenario.endpoint, with_keys=plan.with_keys)
        self.start = plan.start_here()
        self.folder = plan.folder_here(settings.runs)
        self.trace = scenario.played()
        self.over = False
        self.metrics = CountedMetrics(RunObjectives.from_workload(plan.meta.workload))

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
