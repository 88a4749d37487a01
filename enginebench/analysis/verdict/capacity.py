"""Capacity: the highest measured load at which an engine meets its objectives, and the lowest at which it does not.

Nothing is interpolated between two measured loads. A capacity search has its own certificate, an anytime-valid test
over all its probes, which replaces the bracket of the measured loads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from enginebench.analysis.engine_runs import EngineRuns, loads_make_axis
from enginebench.analysis.verdict.slo_verdict import SloVerdict, Status, judge
from enginebench.records.search import SearchRecord
from enginebench.records.slo import Objective
from enginebench.records.view import Missing, StageView


@dataclass(frozen=True, slots=True)
class LoadVerdict:
    """An engine at a load. `stages` are the labels of the load's stages: several, if a search probed it again."""

    stages: tuple[str, ...]
    load: float
    slo: SloVerdict

    @property
    def stage(self) -> str:
        return self.stages[0]


@dataclass(frozen=True, slots=True)
class Capacity:
    """The load that one replica sustains within all objectives, in `unit`.

    `load` is the highest load that meets them and is below every load that misses them; `None` if the lowest measured
    load misses them. `beyond` is the lowest load that misses them; `None` if no higher load was measured. Both are
    `None` without a verdict. `certified`: both come from a search's own test, and `estimate` is its best guess.
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
        """Return the verdict at `load`; `None` if a search certified a load between its probes."""
        return self.at(self.load)

    def at(self, load: float | None) -> LoadVerdict | None:
        return next((verdict for verdict in self.verdicts if verdict.load == load), None)

    @property
    def met_confirmed(self) -> bool:
        """Return whether `load` is confirmed as met."""
        return self.confirmed or (self.at_load is not None and self.at_load.slo.confirmed)

    @property
    def missed_confirmed(self) -> bool:
        """Return whether `beyond` is confirmed as missed."""
        verdict = self.at(self.beyond)
        return self.beyond is not None and (self.confirmed or (verdict is not None and verdict.slo.confirmed))

    @property
    def unknown(self) -> float | None:
        """Return the load next to the known end whose outcome is unknown: above `load` if no load misses, below
        `beyond` if none is met; `None` if there is none."""
        loads = [verdict.load for verdict in self.verdicts if verdict.slo.status is Status.NOT_MEASURED]
        if self.load is None:
            return max((load for load in loads if self.beyond is None or load < self.beyond), default=None)
        return None if self.beyond is not None else min((load for load in loads if load > self.load), default=None)

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Return the highest load up to `load` confirmed as met and the lowest load from `beyond` on confirmed as
        missed: the capacity is between them. An unconfirmed end is as measured, `None` without one."""
        if self.load is None or self.beyond is None:
            return None
        sure = [verdict for verdict in self.verdicts if verdict.slo.confirmed]
        met = (verdict.load for verdict in sure if verdict.load <= self.load)
        missed = (verdict.load for verdict in sure if verdict.slo.status is Status.MISSED)
        return max(met, default=self.load), min(missed, default=self.beyond)

    @property
    def uncounted(self) -> bool:
        """Return whether a load was not judged because the tokens of its answers are unknown."""
        return any(verdict.slo.missing is Missing.UNCOUNTED for verdict in self.verdicts)


def capacity_of(engine: EngineRuns, objectives: Sequence[Objective]) -> Capacity | None:
    """Return `None` if no objective was judged, or the stages differ in more than their load."""
    searches = [run.search for run in engine.runs if run.search is not None]
    searches = [search for search in searches if search.objectives == tuple(map(str, objectives))]
    if not objectives or len(searches) < len(engine.runs):
        searches = []
    verdicts = _verdicts(engine, objectives, bool(searches))
    verdicts = verdicts if searches else confirm_implied(verdicts)
    if not (searches or (verdicts and loads_make_axis(engine.runs))):
        return None
    load, beyond = _bracket(verdicts)
    measured = Capacity(
        engine=engine.label,
        unit=searches[0].unit if searches else engine.stages[0].load_unit,
        objectives=tuple(objectives),
        verdicts=verdicts,
        load=load,
        beyond=beyond,
        confirmed=_confirmed(load, beyond, {verdict.load for verdict in verdicts if verdict.slo.confirmed}),
    )
    return _certified(measured, searches) if searches else measured


def capacities_of(engines: Sequence[EngineRuns]) -> tuple[Capacity, ...]:
    """Return the capacity of each engine that was judged by objectives."""
    capacities = [capacity_of(engine, engine.runs[0].objectives) for engine in engines]
    return tuple(capacity for capacity in capacities if capacity is not None)


def _verdicts(engine: EngineRuns, objectives: Sequence[Objective], by_probe: bool) -> tuple[LoadVerdict, ...]:
    """Return a verdict for every load at which all objectives were judged, the lightest first. Stages of a search are
    named separately, and several may probe one load."""
    groups: dict[str | float, list[StageView]] = {}
    for stage in engine.stages:
        if objectives and all(stage.judgement(objective) is not None for objective in objectives):
            groups.setdefault(stage.load if by_probe else stage.label, [])
    for stage in engine.stages:
        if (key := stage.load if by_probe else stage.label) in groups:
            groups[key].append(stage)
    verdicts = [
        LoadVerdict(tuple(dict.fromkeys(stage.label for stage in group)), group[0].load, judge(group, objectives))
        for group in groups.values()
    ]
    return tuple(sorted(verdicts, key=lambda verdict: verdict.load))


def confirm_implied(verdicts: tuple[LoadVerdict, ...]) -> tuple[LoadVerdict, ...]:
    """Confirm what confirmed verdicts imply. The share of good requests falls as load grows, so all loads below a
    confirmed met load are met, and all loads above a confirmed missed load are missed."""
    sure = [verdict for verdict in verdicts if verdict.slo.confirmed]
    met = max((verdict.load for verdict in sure if verdict.slo.status is Status.MET), default=-math.inf)
    missed = min((verdict.load for verdict in sure if verdict.slo.status is Status.MISSED), default=math.inf)
    implied = {
        verdict.stage
        for verdict in verdicts
        if (verdict.slo.status is Status.MET and verdict.load < met)
        or (verdict.slo.status is Status.MISSED and verdict.load > missed)
    }
    return tuple(
        replace(verdict, slo=replace(verdict.slo, confirmed=True)) if verdict.stage in implied else verdict
        for verdict in verdicts
    )


def _bracket(verdicts: Sequence[LoadVerdict]) -> tuple[float | None, float | None]:
    """Return the highest load met and the lowest missed. A load counts as met only if no lower load is missed, because
    the share of good requests falls as load grows."""
    beyond = min((verdict.load for verdict in verdicts if verdict.slo.status is Status.MISSED), default=None)
    met = [verdict.load for verdict in verdicts if verdict.slo.status is Status.MET]
    return max((load for load in met if beyond is None or load < beyond), default=None), beyond


def _confirmed(load: float | None, beyond: float | None, confirmed: Set[float]) -> bool:
    bounds = {bound for bound in (load, beyond) if bound is not None}
    return bool(bounds) and bounds <= confirmed


def _certified(measured: Capacity, searches: Sequence[SearchRecord]) -> Capacity:
    """Return the bracket that contains the brackets of all searches. An end that a search did not certify is as
    measured, unless that contradicts the certified end.

    Probes were placed by the results of earlier ones, so only the certificates confirm them.
    """
    met, missed = [search.met for search in searches], [search.missed for search in searches]
    certified_load = min((end for end in met if end is not None), default=None) if None not in met else None
    certified_beyond = max((end for end in missed if end is not None), default=None) if None not in missed else None
    load, beyond = certified_load, certified_beyond
    if load is None and (beyond is None or (measured.load or 0.0) < beyond):
        load = measured.load
    if beyond is None and (load is None or (measured.beyond or math.inf) > load):
        beyond = measured.beyond
    estimates = [search.estimate for search in searches if search.estimate is not None]
    ends = {end for end in (certified_load, certified_beyond) if end is not None}
    return replace(
        measured,
        verdicts=tuple(_by_certificate(verdict, certified_load, certified_beyond) for verdict in measured.verdicts),
        load=load,
        beyond=beyond,
        confirmed=_confirmed(load, beyond, ends),
        certified=certified_load is not None and certified_beyond is not None,
        estimate=sum(estimates) / len(estimates) if estimates else None,
    )


def _by_certificate(verdict: LoadVerdict, load: float | None, beyond: float | None) -> LoadVerdict:
    met, missed = load is not None and verdict.load <= load, beyond is not None and verdict.load >= beyond
    certified = Status.MET if met else Status.MISSED if missed else None
    return replace(verdict, slo=replace(verdict.slo, confirmed=verdict.slo.status is certified))
