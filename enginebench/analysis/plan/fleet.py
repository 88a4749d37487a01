"""A fleet of equal replicas under a peak, in simulated futures: the share of requests that meet each objective.

A future draws what the fit leaves open, how fast the machine is, which of the measured lengths are asked, and when
requests come. The same futures are used for every size of the fleet, so that sizes differ by their size alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from enginebench.analysis.arrays import Flags, Floats
from enginebench.analysis.plan.model import FittedModel, Future
from enginebench.analysis.plan.requests import Band, Lengths, Requests, band, not_above
from enginebench.analysis.plan.settings import Balancer
from enginebench.analysis.plan.simulation import serve_fleet, serve_users
from enginebench.records.load import Load, Rate
from enginebench.records.rules import weighted_percentile
from enginebench.records.slo import Objective

FUTURES, FEW_FUTURES = 60, 20  # from which the number of replicas is taken; from which other figures are
SURE, MEDIAN = 0.95, 0.5  # shares of futures that meet every objective
MOST_REQUESTS = 6000  # of one future; of larger fleets a part is simulated, whose shares vary more than the whole's
LEAST_TOGETHER = 6  # replicas that stand for a larger fleet, where the balancer looks at them all
WARM_UP, ANSWERS = 30.0, 3  # seconds, and mean answers, that the warm-up lasts at least
USER_LENGTHS = 8192  # drawn for the users of one replica, who ask them in turn


@dataclass(frozen=True, slots=True)
class Peak:
    """What a fleet must bear: `load` in all, for `seconds`, and what is asked."""

    load: Load
    lengths: Lengths
    seconds: float = 300.0
    starts: float = 5.0  # seconds over which users come
    think: Floats = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True, slots=True)
class Tally:
    """The requests due in the window of one future, on some of the replicas."""

    requests: int
    seconds: float  # of the window
    in_flight: float  # time-average
    output: float  # tokens
    prompts: float
    latencies: Mapping[str, npt.NDArray[np.float32]]  # seconds, by metric; `nan` where a request has none

    def within(self, objective: Objective) -> Flags:
        return not_above(self.latencies[objective.metric], objective.limit)


Parts = Sequence[tuple[Tally, float]]  # with how many replicas each stands for


@dataclass(frozen=True, slots=True)
class Attainment:
    """How `replicas` do in `futures` of them: the share of requests that met all objectives, and each of them."""

    replicas: int
    futures: int
    met: float  # share of futures in which every objective was met
    share: Band
    of: tuple[Band, ...]
    objectives: tuple[Objective, ...]
    in_flight: float  # time-average over all replicas
    output: float  # tokens per second of the fleet
    prompts: float  # prompt tokens per second
    rate: float  # answers per second
    ttft_p95: Band  # seconds
    tpot_p50: Band  # `nan` where answers have one token


@dataclass(eq=False, slots=True)
class Fleet:
    """Any number of replicas of one model under one peak; what was simulated once is kept in `tallies`."""

    fitted: FittedModel
    peak: Peak
    objectives: tuple[Objective, ...]
    balancer: Balancer
    most_requests: int = MOST_REQUESTS
    tallies: dict[tuple[float, int, int], Tally] = field(default_factory=dict, repr=False)

    def meets(self, replicas: int, future: int) -> bool:
        parts = self.parts(replicas, future)
        return all(share_within(parts, objective) >= objective.q for objective in self.objectives)

    def asked(self, replicas: int, future: int) -> bool:
        """Whether a request is due in the window on every replica."""
        return all(tally.requests for tally, _ in self.parts(replicas, future))

    def met(self, replicas: int, futures: int) -> float:
        """Share of so many futures."""
        return sum(self.meets(replicas, future) for future in range(futures)) / futures

    def holds(self, replicas: int, share: float, futures: int = FUTURES) -> bool:
        """Whether at least this share of the futures meet every objective; ends as soon as too many missed one."""
        allowed = math.floor((1 - share) * futures + 1e-9)
        missed = 0
        for future in range(futures):
            missed += not self.meets(replicas, future)
            if missed > allowed:
                return False
        return True

    def attainment(self, replicas: int, futures: int) -> Attainment:
        parts = [self.parts(replicas, future) for future in range(futures)]

        def share(*objectives: Objective) -> Band:
            return band([share_within(future, *objectives) for future in parts])

        def mean(of: Callable[[Tally], float]) -> float:
            return sum(weight * of(tally) for future in parts for tally, weight in future) / futures

        return Attainment(
            replicas,
            futures,
            self.met(replicas, futures),
            share(*self.objectives),
            tuple(map(share, self.objectives)),
            self.objectives,
            mean(lambda tally: tally.in_flight),
            mean(lambda tally: tally.output / tally.seconds),
            mean(lambda tally: tally.prompts / tally.seconds),
            mean(lambda tally: tally.requests / tally.seconds),
            _band_of_known(_percentile(future, "ttft", 0.95) for future in parts),
            _band_of_known(_percentile(future, "tpot", 0.5) for future in parts),
        )

    def parts(self, replicas: int, future: int) -> Parts:
        """What one future holds: the requests of a few replicas, and of how many they are those."""
        load = self.peak.load
        if isinstance(load, Rate):
            key = (load.per_second, replicas, future)
            if key not in self.tallies:
                self.tallies[key] = self._tally(self._open_loop(replicas, Future(future)), self.peak.seconds)
            return [(self.tallies[key], replicas / self._simulated(replicas))]
        parts = []
        for users, weight in self._split(replicas):
            key = (users, 1, future)
            if key not in self.tallies:
                self.tallies[key] = self._tally(*self._users(users, Future(future)))
            parts.append((self.tallies[key], weight))
        return parts

    def _split(self, replicas: int) -> list[tuple[int, float]]:
        """Users of a replica, and of how many replicas."""
        fewest, more = divmod(round(self.peak.load.value), replicas)
        return [
            (users, float(count)) for users, count in ((fewest + 1, more), (fewest, replicas - more)) if users * count
        ]

    def _simulated(self, replicas: int) -> int:
        least = LEAST_TOGETHER if self.balancer == "least_requests" else 1
        each = self.peak.load.value * (WARM_UP + self.peak.seconds) / replicas
        return min(replicas, max(least, round(self.most_requests / each)))

    def _open_loop(self, replicas: int, future: Future) -> Requests:
        model, rate, lengths = future.drawn(self.fitted), self.peak.load.value, self._lengths(future)
        simulated = self._simulated(replicas)

        def serve(warm_up: float) -> Requests:
            until = warm_up + self.peak.seconds
            return serve_fleet(model, rate, until, lengths, replicas, self.balancer, future.rng, simulated)

        return self._warmed_up(serve)[0]

    def _users(self, users: int, future: Future) -> tuple[Requests, float]:
        """Of one replica: the requests of the window, and its length in seconds."""
        peak, model, asked = self.peak, future.drawn(self.fitted), self._lengths(future)

        def serve(warm_up: float) -> Requests:
            rng, until, bound = future.rng, warm_up + peak.seconds, (warm_up, self.most_requests)
            starts, lengths = rng.uniform(0, peak.starts, users), asked.drawn(USER_LENGTHS, rng)
            return serve_users(model, starts, lengths, until, peak.think, rng, bound)

        inside, start = self._warmed_up(serve)
        if len(inside.sched) < self.most_requests:
            return inside, peak.seconds
        end = float(inside.sched[self.most_requests - 1])
        return inside.between(start, end), max(end - start, 1e-9)

    def _warmed_up(self, serve: Callable[[float], Requests]) -> tuple[Requests, float]:
        """The requests due in the window, and when it begins. `serve` simulates a warm-up of so many seconds and the
        window; where a few answers take longer than that, once more with a longer one."""
        warm_up, requests = WARM_UP, serve(WARM_UP)
        took = (requests.last - requests.sched)[requests.sched < WARM_UP + self.peak.seconds]
        took = took[np.isfinite(took)]
        if len(took) and (longer := ANSWERS * float(took.mean())) > warm_up:
            warm_up, requests = longer, serve(longer)
        return requests.between(warm_up, warm_up + self.peak.seconds), warm_up

    def _lengths(self, future: Future) -> Lengths:
        """As many as were measured, drawn from them: other requests might as well have been measured (bootstrap)."""
        lengths = self.peak.lengths
        return lengths.drawn(len(lengths), np.random.default_rng([future.seed, future.number, 1]))

    def _tally(self, requests: Requests, seconds: float) -> Tally:
        metrics = {"ttft", "tpot", *(objective.metric for objective in self.objectives)}
        return Tally(
            len(requests.sched),
            seconds,
            float((requests.last - requests.sched).sum()) / seconds,
            float(requests.lengths.output.sum()),
            float(requests.lengths.prompt.sum()),
            {metric: requests.latencies[metric].astype(np.float32) for metric in metrics},
        )


def share_within(parts: Parts, *objectives: Objective) -> float:
    """The share of the requests that are within all of the objectives. Where none is due on some of the replicas,
    nothing is shown of those, and nothing met."""
    if not all(tally.requests for tally, _ in parts):
        return 0.0
    total = sum(weight * tally.requests for tally, weight in parts)
    good = [np.logical_and.reduce([tally.within(objective) for objective in objectives]) for tally, _ in parts]
    return sum(weight * float(met.sum()) for met, (_, weight) in zip(good, parts, strict=True)) / total


def _percentile(parts: Parts, metric: str, q: float) -> float:
    """Each value with the weight of its replicas; by nearest rank."""
    values = np.concatenate([tally.latencies[metric] for tally, _ in parts])
    weights = np.concatenate([np.full(tally.requests, weight) for tally, weight in parts])
    known = ~np.isnan(values)
    order = np.argsort(values[known])
    if not len(order):
        return math.nan
    return weighted_percentile(values[known][order], np.cumsum(weights[known][order]), q)


def _band_of_known(values: Iterable[float]) -> Band:
    """Over the futures that have one; `nan` where none has."""
    return band([value for value in values if not math.isnan(value)] or [math.nan])
