"""Runs a search on stages: each probe is a stage, judged by the counts of all processes, and is recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from loadtests.harness.schedule.control import UNDECIDED
from loadtests.harness.schedule.search.counts import StageCounts
from loadtests.harness.schedule.search.procedure import Decision, Goal, Probe, Search
from records.load import Load, Rate, Users
from records.search import Limit, ProbeRecord, ProbeShare, SearchRecord, State
from records.slo import FAILURES, Objective
from records.stage import SECOND, Extent, Nanoseconds, Stage, StagePlan

By = Literal["rate", "users", "agents"]
REPORTED = SECOND // 2  # by then every process has reported what it scheduled
WARM_UP_LIMITS, LEAST_WARM_UP = 10.0, 1.0  # warm-up in latency limits, and in seconds at least
SPARE = 2  # a stage's window holds so many times the requests that the probe judges
DRAIN = 600.0  # seconds that the requests of a probe get to be answered before the next one
HALVINGS = 6  # of the first load


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """What a scenario asks to be searched. Loads in `unit`; `seconds` limits the whole search."""

    by: By
    objectives: tuple[Objective, ...]
    start: float
    highest: float
    seconds: float
    arrivals: str = "poisson"

    @property
    def unit(self) -> str:
        return "req/s" if self.by == "rate" else self.by

    def goal(self) -> Goal:
        whole = self.by != "rate"
        limits = [each.limit for each in self.objectives if each.metric in {"ttft", "e2e"}]
        return Goal(
            shares=tuple(each.q for each in self.objectives),
            start=self.start,
            lowest=1.0 if whole else self.start / 2**HALVINGS,
            highest=self.highest,
            whole=whole,
            warm_up=max(LEAST_WARM_UP, WARM_UP_LIMITS * max(limits, default=0.0)),
        )

    def stage(self, probe: Probe) -> StagePlan:
        load: Load = Users(round(probe.load)) if self.by != "rate" else Rate(probe.load, self.arrivals)
        label = load.label.replace("user", "agent") if self.by == "agents" else load.label
        return StagePlan(
            load,
            Extent(probe.warm_up),
            Extent(SPARE * probe.most_requests, "requests"),
            bound=DRAIN,
            name=f"probe {probe.number + 1}: {label}",
            drains=True,
        )


class Prober:
    """Belongs to the planning process. Instants are nanoseconds since the run's start."""

    def __init__(self, plan: SearchPlan) -> None:
        self._plan = plan
        self._search = Search(plan.goal())
        self._counts: StageCounts | None = None
        self._stage = -1
        self._late: dict[int, tuple[float, float, float] | None] = {}  # by stage
        self._records: list[ProbeRecord] = []
        self.stopped = False

    def next_stage(self) -> StagePlan | None:
        """The stage of the probe that is due; `None` when the search is over."""
        probe = self._search.probe
        if probe is None or self.stopped:
            return None
        return self._plan.stage(probe)

    def take(self, worker: str, message: Mapping[str, Any]) -> None:
        """What a process has counted."""
        if self._counts is not None and message["stage"] == self._stage:
            self._counts.take(worker, message)

    def enter(self, stage: Stage) -> None:
        """A stage has begun."""
        if stage.index != self._stage and stage.start != UNDECIDED:
            self._stage, self._counts = stage.index, StageCounts(stage, len(self._plan.objectives))

    def look(self, now: Nanoseconds, stage: Stage, last: bool = False) -> Decision | None:
        """Judge the probe that is on; a decision ends it. `last`: it has nothing more to show."""
        counts, search = self._counts, self._search
        out_of_time = now >= self._plan.seconds * SECOND
        judged = bool(self._records) and self._records[-1].stage == stage.index
        if self.over or judged or counts is None or stage.index != self._stage:
            return None
        if stage.steady_start is None:
            self.stopped = out_of_time
            return None
        until = now - REPORTED if stage.steady_end is None else min(now - REPORTED, stage.steady_end)
        first, closed = counts.first(stage.steady_start), counts.close(until)
        last = last or out_of_time
        if not last and counts.requests(first, closed) < search.next_look:
            return None
        evidence = counts.evidence(first, closed, until)
        decision = search.look(evidence, counts.seconds(closed - first), last)
        if decision is None:
            return None
        self.stopped = out_of_time
        self._late[stage.index] = counts.late_parts
        self._records.append(self._record(stage, decision))
        return decision

    def _record(self, stage: Stage, decision: Decision) -> ProbeRecord:
        shares = zip(self._plan.objectives, decision.shares, strict=False)
        return ProbeRecord(
            stage=stage.index,
            load=decision.probe.load,
            role=decision.probe.role,
            verdict=decision.verdict,
            reason=decision.reason,
            requests=decision.requests,
            shares=tuple(ProbeShare(o.name, round(s.good, 6), round(s.effective, 1)) for o, s in shares),
        )

    # What came of it.

    @property
    def over(self) -> bool:
        return self.stopped or self._search.probe is None

    def record(self, ended: bool = False) -> SearchRecord:
        """The trail so far; `ended`: the run is over, so the search is as well."""
        met, missed = self._search.bracket
        return SearchRecord(
            by=self._plan.by,
            unit=self._plan.unit,
            objectives=tuple(map(str, self._plan.objectives)),
            state=self._state() if ended or self.over else "running",
            estimate=self._search.estimate,
            met=met,
            missed=missed,
            limited_by=self._limited_by(),
            requests=sum(probe.requests for probe in self._records),
            probes=tuple(self._records),
        )

    def _state(self) -> State:
        search = self._search
        if search.found:
            return "found"
        leans = {decision.leans for decision in search.decisions if decision.shares}
        if leans == {"missed"} and min(d.probe.load for d in search.decisions) <= search.goal.lowest:
            return "missed at the lowest load"
        if leans == {"met"} and max(d.probe.load for d in search.decisions) >= search.goal.highest:
            return "met at the highest load"
        return "undecided"

    def _limited_by(self) -> Limit | None:
        """What the lowest load that missed an objective shows."""
        missed = [probe for probe in self._records if probe.verdict == "missed" and probe.shares]
        if not missed:
            return None
        probe = min(missed, key=lambda each: each.load)
        worst = max(range(len(probe.shares)), key=lambda k: _excess(probe.shares[k], self._plan.objectives[k]))
        return limit_of(self._plan.objectives[worst], self._late.get(probe.stage))


def _excess(share: ProbeShare, objective: Objective) -> float:
    """By how many times more requests missed the objective than may."""
    return (1 - share.good) / (1 - objective.q)


def limit_of(objective: Objective, late: Sequence[float] | None) -> Limit:
    """What a missed objective says of the server. `late`: mean queue, prefill and decode of the late requests."""
    if objective.metric == FAILURES:
        return "failures"
    if objective.metric in {"tpot", "ntpot"}:
        return "decode"
    if late is None:
        return "time to first token" if objective.metric == "ttft" else "time to the whole answer"
    queue, prefill, decode = late
    parts: dict[Limit, float] = {"queue": queue, "prefill": prefill}
    if objective.metric == "e2e":
        parts["decode"] = decode
    return max(parts, key=lambda part: parts[part])
