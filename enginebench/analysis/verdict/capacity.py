"""Capacity: the highest measured load at which an engine meets its objectives, and the lowest at which it does not.

Nothing between two measured loads is interpolated. A capacity search has a certificate of its own, an anytime-valid
test over all its probes, which replaces the bracket of the measured loads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from enginebench.analysis.compare.engine_runs import EngineRuns, by_load
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.analysis.verdict.slo import SloVerdict, Status, judge
from enginebench.records.search import SearchRecord
from enginebench.records.slo import Objective, of_tier


@dataclass(frozen=True, slots=True)
class LoadVerdict:
    """One engine at one load. `stage` is the label of the load's stages."""

    stage: str
    load: float
    slo: SloVerdict


@dataclass(frozen=True, slots=True)
class Capacity:
    """What one replica sustains within all objectives of a tier, in `unit`.

    `load` is the highest load that meets them with no lower one missed, `None` if the lowest measured load misses them;
    `beyond` the lowest load that misses them, `None` if no higher load was measured. Both are `None` without a
    verdict. `certified`: a search's own test, with `estimate` as its best guess between the two.
    """

    engine: str
    unit: str
    objectives: tuple[Objective, ...]
    verdicts: tuple[LoadVerdict, ...]  # lightest load first
    load: float | None
    beyond: float | None
    confirmed: bool
    certified: bool = False
    estimate: float | None = None

    @property
    def at_load(self) -> LoadVerdict | None:
        """The verdict at `load`; `None` if a search certified a load between its probes."""
        return self.at(self.load)

    def at(self, load: float | None) -> LoadVerdict | None:
        return next((verdict for verdict in self.verdicts if verdict.load == load), None)

    @property
    def next_to_measure(self) -> LoadVerdict | None:
        """The highest load whose confirmation would raise the confirmed capacity; `None` if nothing is unconfirmed."""
        open_verdicts = [verdict for verdict in self.verdicts if not verdict.slo.confirmed]
        bounds = [verdict for verdict in open_verdicts if verdict.load in {self.load, self.beyond}]
        return max(bounds, key=lambda verdict: verdict.load, default=None)


def capacity_of(engine: EngineRuns, objectives: Sequence[Objective]) -> Capacity | None:
    """`None` if no objective was judged, or the stages differ in more than their load."""
    if not objectives:
        return None
    verdicts = _verdicts(engine, objectives)
    searches = [run.search for run in engine.runs if _searched_for(run, objectives)]
    if len(searches) == len(engine.runs):
        return _certified(engine, verdicts, objectives, [search for search in searches if search is not None])
    if not verdicts or not by_load(engine.runs):
        return None
    load, beyond = _bracket(verdicts)
    bounds = [verdict.slo.confirmed for verdict in verdicts if verdict.load in {load, beyond}]
    return Capacity(
        engine=engine.label,
        unit=engine.stages[0].load_unit,
        objectives=tuple(objectives),
        verdicts=verdicts,
        load=load,
        beyond=beyond,
        confirmed=bool(bounds) and all(bounds),
    )


def capacities_of(engines: Sequence[EngineRuns], tier: str | None = None) -> tuple[Capacity, ...]:
    """Of each engine that was judged by the objectives of a tier (the first one)."""
    capacities = [capacity_of(engine, of_tier(engine.runs[0].objectives, tier)) for engine in engines]
    return tuple(capacity for capacity in capacities if capacity is not None)


def _verdicts(engine: EngineRuns, objectives: Sequence[Objective]) -> tuple[LoadVerdict, ...]:
    """Of every load at which all objectives were judged, lightest first."""
    labels = dict.fromkeys(stage.label for stage in engine.stages if all(map(stage.judgement, objectives)))
    stages = [engine.at(label) for label in labels]
    verdicts = [LoadVerdict(of_load[0].label, of_load[0].load, judge(of_load, objectives)) for of_load in stages]
    return tuple(sorted(verdicts, key=lambda verdict: verdict.load))


def _bracket(verdicts: Sequence[LoadVerdict]) -> tuple[float | None, float | None]:
    """A load counts as met only if no lower one is missed: the share of good requests falls as load grows."""
    beyond = min((verdict.load for verdict in verdicts if verdict.slo.status is Status.MISSED), default=None)
    met = [verdict.load for verdict in verdicts if verdict.slo.status is Status.MET]
    return max((load for load in met if beyond is None or load < beyond), default=None), beyond


def _searched_for(run: RunSummary, objectives: Sequence[Objective]) -> bool:
    return run.search is not None and run.search.objectives == tuple(map(str, objectives))


def _certified(
    engine: EngineRuns,
    verdicts: tuple[LoadVerdict, ...],
    objectives: Sequence[Objective],
    searches: Sequence[SearchRecord],
) -> Capacity:
    """The bracket that holds those of all searches. An end that no search certified is as measured: from the estimate
    of the search, and from its probes."""
    met, missed = [search.met for search in searches], [search.missed for search in searches]
    load = min((end for end in met if end is not None), default=None) if None not in met else None
    beyond = max((end for end in missed if end is not None), default=None) if None not in missed else None
    measured_load, measured_beyond = _bracket(verdicts)
    certified = load is not None and beyond is not None
    if load is None and (beyond is None or measured_load is None or measured_load < beyond):
        load = measured_load
    if beyond is None and (load is None or measured_beyond is None or measured_beyond > load):
        beyond = measured_beyond
    ended = all(
        search.state in {"found", "met at the highest load", "missed at the lowest load"} for search in searches
    )
    estimates = [search.estimate for search in searches if search.estimate is not None]
    return Capacity(
        engine=engine.label,
        unit=searches[0].unit,
        objectives=tuple(objectives),
        verdicts=verdicts,
        load=load,
        beyond=beyond,
        confirmed=certified or ended,
        certified=certified,
        estimate=sum(estimates) / len(estimates) if estimates else None,
    )
