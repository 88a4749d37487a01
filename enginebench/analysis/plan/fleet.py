"""A fleet of equal replicas under a peak, in simulated futures, and the smallest sufficient number of replicas.

A future draws the speed of the machine, and the lengths and arrivals of the requests. Every fleet size is simulated
with the same futures, so that only the size differs. Arrivals go to the replicas in turn (round robin), and each
replica has an equal share of the users.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from enginebench.analysis.arrays import Floats
from enginebench.analysis.plan.measured import SupportedLoads
from enginebench.analysis.plan.model import EngineModel, Future
from enginebench.analysis.plan.not_planned import CannotPlan, NotPlanned
from enginebench.analysis.plan.requests import Band, Lengths, Requests, band, joined
from enginebench.analysis.plan.simulation import ClosedLoop, arrivals_in_turn, serve
from enginebench.records.load import Load, Rate, Users
from enginebench.records.slo import Objective

FUTURES, FIRST_FUTURES = 60, 20  # the first ones are enough if too many of them miss
SURE = 0.95  # share of futures that meet every objective
CLEARLY = 0.8  # if at most this share of the first futures meets the objectives, no more are simulated
LOCATING = 4  # futures to find roughly how many replicas are needed
STEP = 0.01  # step of the search, as a share of a large fleet
MAX_REPLICAS = 100_000
MAX_REQUESTS = 6000  # per future; of a larger fleet, only a part is simulated, whose shares vary more
MAX_OF_REPLICA = 60_000  # requests of a replica in one future, at a rate
WARM_UP, ANSWERS = 30.0, 3  # minimum warm-up in seconds, and in mean answers
USER_LENGTHS = 8192  # drawn for the users of one replica


@dataclass(frozen=True, slots=True)
class Peak:
    """The load of the whole fleet, for `seconds`, with the lengths of its requests."""

    load: Load
    lengths: Lengths
    seconds: float = 300.0
    starts: float = 5.0  # seconds over which users come
    think: Floats = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True, slots=True)
class Tally:
    """Requests in the window of one future, on replicas that represent `weight` times as many: the number due, and the
    number within each objective and, in the last element, within all objectives."""

    requests: int
    within: tuple[int, ...]
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Attainment:
    """A fleet in simulated futures: `met` is the share of futures in which every objective is met, `share` the share of
    requests within all objectives."""

    replicas: int
    futures: int
    met: float
    share: Band


@dataclass(eq=False, slots=True)
class Fleet:
    """Any number of replicas of one model under one peak; `tallies` caches simulations."""

    model: EngineModel
    peak: Peak
    objectives: tuple[Objective, ...]
    tallies: dict[tuple[float, int, int], Tally] = field(default_factory=dict, repr=False)

    def meets(self, replicas: int, future: int) -> bool:
        parts = self._parts(replicas, future)
        return all(_share(parts, k) >= objective.q for k, objective in enumerate(self.objectives))

    def met(self, replicas: int, futures: int) -> float:
        """Return the share of futures that meet every objective."""
        return sum(self.meets(replicas, future) for future in range(futures)) / futures

    def sustains(self, replicas: int, futures: int = FUTURES) -> bool:
        """Return whether at least 95 % of the futures meet every objective; stop as soon as too many missed one."""
        allowed = math.floor((1 - SURE) * futures + 1e-9)
        missed = 0
        for future in range(futures):
            missed += not self.meets(replicas, future)
            if missed > allowed:
                return False
        return True

    def attainment(self, replicas: int, futures: int = FUTURES) -> Attainment:
        shares = [_share(self._parts(replicas, future), -1) for future in range(futures)]
        return Attainment(replicas, futures, self.met(replicas, futures), band(shares))

    def _parts(self, replicas: int, future: int) -> list[Tally]:
        load = self.peak.load
        if isinstance(load, Rate):
            parts = [(load.per_second, replicas, replicas / self._simulated(replicas))]
        else:
            fewest, more = divmod(load.count, replicas)
            shares = ((fewest + 1, more), (fewest, replicas - more))
            parts = [(float(users), 1, float(count)) for users, count in shares if users * count]
        return [replace(self._tally(value, count, Future(future)), weight=weight) for value, count, weight in parts]

    def _tally(self, load: float, replicas: int, future: Future) -> Tally:
        key = (load, replicas, future.number)
        if key not in self.tallies:
            if isinstance(self.peak.load, Rate):
                requests = self._arrivals(replicas, future)
            else:
                requests = self._users(int(load), future)
            within = [~(requests.latencies[goal.metric] > goal.limit) for goal in self.objectives]
            counts = tuple(int(good.sum()) for good in (*within, np.logical_and.reduce(within)))
            self.tallies[key] = Tally(len(requests.sched), counts)
        return self.tallies[key]

    def _simulated(self, replicas: int) -> int:
        expected = self.peak.load.value * (WARM_UP + self.peak.seconds) / replicas
        return min(replicas, max(1, round(MAX_REQUESTS / expected)))

    def _arrivals(self, replicas: int, future: Future) -> Requests:
        """Give each replica every n-th arrival of a Poisson process; some replicas represent a large fleet."""
        model, asked = future.drifted(self.model), self._lengths(future)

        def run(warm_up: float) -> Requests:
            rng, seconds = future.rng, warm_up + self._seconds(replicas)
            parts = arrivals_in_turn(self.peak.load.value, replicas, self._simulated(replicas), seconds, rng)
            return joined([serve(model, own, asked.drawn(max(len(own), 1), rng), rng) for own in parts])

        return self._warmed_up(run, self._seconds(replicas))

    def _seconds(self, replicas: int) -> float:
        """Return the seconds for which a rate is simulated: those of the peak, or fewer if a replica would get very
        many requests."""
        return min(self.peak.seconds, MAX_OF_REPLICA * replicas / self.peak.load.value)

    def _users(self, users: int, future: Future) -> Requests:
        """Simulate the users of one replica."""
        peak, model, asked = self.peak, future.drifted(self.model), self._lengths(future)

        def run(warm_up: float) -> Requests:
            rng, closed = future.rng, ClosedLoop(warm_up + peak.seconds, peak.think, warm_up, MAX_REQUESTS)
            starts, lengths = rng.uniform(0, peak.starts, users), asked.drawn(USER_LENGTHS, rng)
            return serve(model, starts, lengths, rng, closed)

        inside = self._warmed_up(run, peak.seconds)
        end = inside.sched[MAX_REQUESTS - 1] if len(inside.sched) >= MAX_REQUESTS else math.inf
        return inside.between(0.0, float(end))

    def _lengths(self, future: Future) -> Lengths:
        """Resample the measured lengths, because other requests might have been measured."""
        lengths = self.peak.lengths
        return lengths.drawn(len(lengths), np.random.default_rng([future.seed, future.number, 1]))

    def _warmed_up(self, run: Callable[[float], Requests], seconds: float) -> Requests:
        """Return the requests due in a window of `seconds`. `run` simulates a warm-up of some seconds and the window;
        if `ANSWERS` mean answers take longer than the warm-up, `run` is called again with a longer one."""
        warm_up, requests = WARM_UP, run(WARM_UP)
        took = (requests.last - requests.sched)[requests.sched < WARM_UP + seconds]
        took = took[np.isfinite(took)]
        if len(took) and (longer := ANSWERS * float(took.mean())) > warm_up:
            warm_up, requests = longer, run(longer)
        return requests.between(warm_up, warm_up + seconds)


def _share(parts: Sequence[Tally], objective: int) -> float:
    """Return the share of a future's requests within an objective, by its index; 0 if no request is due."""
    total = sum(tally.weight * tally.requests for tally in parts)
    return sum(tally.weight * tally.within[objective] for tally in parts) / total if total else 0.0


@dataclass(frozen=True, slots=True)
class SimulatedReplicas:
    """`chosen` is the smallest fleet with which 95 % of the futures meet every objective; `fewer` is the next smaller
    fleet, `None` if each of its replicas would get more load than the records support: fewer may suffice (`bounded`).
    `capacity` is the number of users of one replica up to which 95 % of the futures meet every objective; `None` if the
    peak is a rate.
    """

    chosen: Attainment
    fewer: Attainment | None
    bounded: bool
    capacity: float | None

    @property
    def count(self) -> int:
        return self.chosen.replicas


def fewest_replicas(fleet: Fleet, supported: SupportedLoads) -> SimulatedReplicas:
    """Raise `CannotPlan` if no number of replicas is enough."""
    load = fleet.peak.load
    floor = supported.fewest(load)
    if isinstance(load, Rate) and floor > MAX_REPLICAS:
        raise CannotPlan(NotPlanned.OUT_OF_REACH)
    # With more replicas, each has hardly anything to do.
    most = load.count if isinstance(load, Users) else min(MAX_REPLICAS, max(64, math.ceil(100 * load.value)))
    located = first(lambda k: fleet.met(k, LOCATING) >= 0.5, floor, max(floor, most))
    step = max(1, round(STEP * (located or 0)))
    more = None if located is None else first(lambda k: fleet.sustains(located + k * step), 0, (most - located) // step)
    if located is None or more is None:
        raise CannotPlan(NotPlanned.OUT_OF_REACH)
    count = located + more * step
    while count - step >= floor and fleet.sustains(count - step):
        count -= step
    fewer = None
    if count - step >= floor:
        clear = fleet.met(count - step, FIRST_FUTURES) <= CLEARLY
        fewer = fleet.attainment(count - step, FIRST_FUTURES if clear else FUTURES)
    bounded = count == floor and floor > 1
    return SimulatedReplicas(fleet.attainment(count), fewer, bounded, _capacity(fleet, supported, count))


def first(true: Callable[[int], bool], low: int, most: int) -> int | None:
    """Return the least number from `low` to `most` from which on `true` holds; `None` if it never does."""
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


def _capacity(fleet: Fleet, supported: SupportedLoads, count: int) -> float | None:
    """Simulate the users of a single replica."""
    load = fleet.peak.load
    if not isinstance(load, Users):
        return None
    most = max(1, math.floor(supported.largest(load) + 1e-9))

    def misses(users: int) -> bool:
        return not Fleet(fleet.model, replace(fleet.peak, load=Users(users)), fleet.objectives).sustains(1)

    start = min(max(1, load.count // count), most)
    missed_at = first(misses, 1 if misses(start) else start, most)
    return float(most if missed_at is None else missed_at - 1)
