"""How many replicas a peak needs by simulation: the fewest with which 95 % of the futures meet every objective."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from enginebench.analysis.plan.fleet import FEW_FUTURES, FUTURES, SURE, Attainment, Fleet
from enginebench.analysis.plan.measured import SupportedLoads
from enginebench.analysis.plan.not_planned import CannotPlan, NotPlanned
from enginebench.records.load import Load, Users

CLEARLY = 0.8  # at most this share of few futures meeting the objectives is too little without further ones
LOCATING = 4  # futures that show roughly how many replicas are needed
STEP = 0.01  # share of a large fleet by which its size is searched
MAX_REPLICAS = 100_000


@dataclass(frozen=True, slots=True)
class SimulatedCapacity:
    """The load of one replica up to which 95 % of the futures meet every objective (`load`), and the next simulated
    one, which does not (`beyond`, `None` if the records support no larger load)."""

    unit: str
    load: float
    beyond: float | None


@dataclass(frozen=True, slots=True)
class SimulatedReplicas:
    """`chosen` is the fewest replicas with which 95 % of the futures meet every objective; `fewer` is the next smaller
    fleet, `None` if each replica would get more load than the records support. In that case fewer may do (`bounded`).
    """

    chosen: Attainment
    fewer: Attainment | None
    bounded: bool
    capacity: SimulatedCapacity

    @property
    def count(self) -> int:
        return self.chosen.replicas


def fewest_replicas(fleet: Fleet, supported: SupportedLoads) -> SimulatedReplicas:
    """Raises `CannotPlan` if no number of replicas is enough."""
    load = fleet.peak.load
    floor = supported.fewest(load)
    most = max(floor, _most(load))
    located = first(lambda k: fleet.met(k, LOCATING) >= 0.5, floor, most)
    if located is None:
        raise CannotPlan(_reason(fleet, most))
    step = max(1, round(STEP * located))
    more = first(lambda k: fleet.sustains(located + k * step), 0, (most - located) // step)
    if more is None:
        raise CannotPlan(_reason(fleet, most))
    count = located + more * step
    while count - step >= floor and fleet.sustains(count - step):
        count -= step
    fewer = _fewer(fleet, count - step) if count - step >= floor else None
    return SimulatedReplicas(
        chosen=fleet.attainment(count, FUTURES),
        fewer=fewer,
        bounded=count == floor and floor > 1,
        capacity=_capacity(fleet, supported, count, fewer),
    )


def _fewer(fleet: Fleet, replicas: int) -> Attainment:
    """From few futures if those show that too many miss, else from as many as the answer."""
    return fleet.attainment(replicas, FEW_FUTURES if fleet.met(replicas, FEW_FUTURES) <= CLEARLY else FUTURES)


def first(true: Callable[[int], bool], low: int, most: int) -> int | None:
    """Return the least number from `low` to `most` from which on it is true; `None` if it never is."""
    if true(low):
        return low
    step, below = 1, low
    while below < most and not true(min(below + step, most)):
        below, step = below + step, 2 * step
    if below >= most:
        return None
    high = min(below + step, most)
    while high - below > 1:
        middle = (below + high) // 2
        below, high = (below, middle) if true(middle) else (middle, high)
    return high


def _most(load: Load) -> int:
    """Return the number of replicas beyond which each has hardly anything to do."""
    return load.count if isinstance(load, Users) else min(MAX_REPLICAS, max(64, math.ceil(100 * load.value)))


def _reason(fleet: Fleet, most: int) -> NotPlanned:
    """A peak is too short if enough futures would meet the objectives but for those in which nothing is due."""
    silent = sum(fleet.silent(most, future) for future in range(FEW_FUTURES)) / FEW_FUTURES
    enough = silent > 0 and fleet.met(most, FEW_FUTURES) + silent >= SURE
    return NotPlanned.SHORT_PEAK if enough else NotPlanned.OUT_OF_REACH


def _capacity(fleet: Fleet, supported: SupportedLoads, count: int, fewer: Attainment | None) -> SimulatedCapacity:
    """Simulate users on a single replica; the rate of one replica is that in the fleet, and in the smaller one."""
    load = fleet.peak.load
    if not isinstance(load, Users):
        beyond = load.value / fewer.replicas if fewer is not None else None
        return SimulatedCapacity(load.unit, load.value / count, beyond)
    most = max(1, math.floor(supported.largest(load) + 1e-9))

    def misses(users: int) -> bool:
        return not replace(fleet, peak=replace(fleet.peak, load=Users(users))).sustains(1)

    start = min(max(1, load.count // count), most)
    missed_at = first(misses, 1 if misses(start) else start, most)
    highest = most if missed_at is None else missed_at - 1
    return SimulatedCapacity(load.unit, float(highest), None if missed_at is None else float(missed_at))
