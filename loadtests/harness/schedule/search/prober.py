"""A search for capacity on the stages of a run: each probe is a stage, judged by the outcomes of all processes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from enginebench.records.load import Load, Rate, Users
from enginebench.records.metrics import E2E, TTFT
from enginebench.records.search import ProbeRecord, ProbeShare, SearchRecord, SearchState
from enginebench.records.slo import Objective
from enginebench.records.stage import SECOND, Extent, Nanoseconds, Stage, StagePlan
from loadtests.harness.schedule.control import UNDECIDED
from loadtests.harness.schedule.search.capacity_search import Probe, Search, SearchGoal
from loadtests.harness.schedule.search.slices import ProbeSlices

By = Literal["rate", "users", "agents"]
REPORTED = SECOND // 2  # after which every process has reported its scheduled requests
WARM_UP_LIMITS, MIN_WARM_UP = 5.0, 1.0  # warm-up in latency limits, and minimum in seconds
WARM_UP_EACH = 3  # requests of each user
SPARE = 2  # ratio of a window's requests to those that the probe judges
DRAIN = 600.0  # seconds for the answers of a probe before the next one
HALVINGS = 6  # maximum halvings of the first load


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """A scenario's search. Loads are in `unit`; `precision` is half of the bracket as a share of its middle; `seconds`
    limits the whole search."""

    by: By
    objectives: tuple[Objective, ...]
    start: float
    highest: float
    precision: float
    seconds: float
    arrivals: str = "poisson"

    @property
    def unit(self) -> str:
        return "req/s" if self.by == "rate" else self.by

    def goal(self) -> SearchGoal:
        whole = self.by != "rate"
        limits = [objective.limit for objective in self.objectives if objective.metric in {TTFT, E2E}]
        return SearchGoal(
            shares=tuple(1 - objective.q for objective in self.objectives),
            precision=self.precision,
            start=self.start,
            lowest=1.0 if whole else self.start / 2**HALVINGS,
            highest=float(math.floor(self.highest)) if whole else self.highest,
            whole=whole,
            warm_up=max(MIN_WARM_UP, WARM_UP_LIMITS * max(limits, default=0.0)),
        )

    def stage(self, probe: Probe) -> StagePlan:
        load: Load = Users(round(probe.load)) if self.by != "rate" else Rate(probe.load, self.arrivals)
        label = load.label.replace("user", "agent") if self.by == "agents" else load.label
        warm_up = Extent(probe.warm_up)
        if isinstance(load, Rate):
            warm_up = Extent(max(probe.warm_up, probe.warm_up_requests / probe.load))
        elif probe.warm_up_requests:
            warm_up = Extent(max(probe.warm_up_requests, WARM_UP_EACH * load.count), "requests")
        window = Extent(SPARE * probe.most_requests, "requests")
        name = f"probe {probe.number + 1}: {label}"
        return StagePlan(load, warm_up, window, bound=DRAIN, name=name, drains=True)


class Prober:
    """The search in the planning process. Instants are nanoseconds since the run's start."""

    def __init__(self, plan: SearchPlan) -> None:
        self._plan = plan
        self._search = Search(plan.goal())
        self._slices: ProbeSlices | None = None
        self._stage = -1
        self._records: list[ProbeRecord] = []
        self.stopped = False

    def next_stage(self) -> StagePlan | None:
        """Return the stage of the next probe; `None` when the search is over."""
        probe = self._search.probe
        return None if probe is None or self.stopped else self._plan.stage(probe)

    def take(self, worker: str, message: Mapping[str, Any]) -> None:
        """Take the slices of a process."""
        if self._slices is not None and message["stage"] == self._stage:
            self._slices.take(worker, message)

    def enter(self, stage: Stage) -> None:
        """Take a stage that has begun."""
        if stage.index != self._stage and stage.start != UNDECIDED:
            self._stage, self._slices = stage.index, ProbeSlices(stage, len(self._plan.objectives))

    def look(self, now: Nanoseconds, stage: Stage, last: bool = False) -> Probe | None:
        """Judge the current probe, and return it if it has ended. `last` is true if all its requests have ended."""
        slices, search = self._slices, self._search
        out_of_time = now >= self._plan.seconds * SECOND
        has_ended = bool(self._records) and self._records[-1].stage == stage.index
        if self.over or has_ended or slices is None or stage.index != self._stage:
            return None
        if stage.steady_start is None:
            self.stopped = out_of_time
            return None
        until = now - REPORTED if stage.steady_end is None else min(now - REPORTED, stage.steady_end)
        first, closed = slices.first(stage.steady_start), slices.close(until)
        last = last or out_of_time
        if not last and slices.requests(first, closed) < search.next_look:
            return None
        ended = search.look(slices.outcomes(first, closed), last)
        if ended is None:
            return None
        self.stopped = out_of_time
        self._records.append(self._record(stage, ended))
        return ended

    def _record(self, stage: Stage, probe: Probe) -> ProbeRecord:
        total, shares = probe.outcomes.total, []
        for k, objective in enumerate(self._plan.objectives if total else ()):
            effective = round(total / probe.outcomes.correlation, 1)
            shares.append(ProbeShare(objective.name, round(1 - probe.outcomes.shares[k], 6), effective))
        return ProbeRecord(stage.index, probe.load, probe.role, probe.verdict, total, tuple(shares))

    # The result.

    @property
    def over(self) -> bool:
        return self.stopped or self._search.probe is None

    def record(self, ended: bool = False) -> SearchRecord:
        """Return the search so far; `ended` is true if the run is over."""
        search = self._search
        return SearchRecord(
            by=self._plan.by,
            unit=self._plan.unit,
            objectives=tuple(map(str, self._plan.objectives)),
            precision=self._plan.precision,
            state=self._state() if ended or self.over else "running",
            estimate=search.estimate,
            met=search.met,
            missed=search.missed,
            requests=sum(probe.requests for probe in self._records),
            probes=tuple(self._records),
        )

    def _state(self) -> SearchState:
        search = self._search
        if search.precise:
            return "found"
        if search.met is not None and search.met >= search.goal.highest:
            return "met at the highest load"
        if search.missed is not None and search.missed <= search.goal.lowest:
            return "missed at the lowest load"
        return "undecided"
