"""A fleet of equal replicas under a peak, in simulated futures: the share of requests that meet the objectives.

A future draws what the fit leaves open, how fast the machine is, the lengths of the requests, and when they come. The
same futures are used for every size of the fleet, so that sizes differ by their size alone. Arrivals go to the replicas
in turn (round robin), and each replica has an equal share of the users.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from enginebench.analysis.arrays import Flags, Floats
from enginebench.analysis.plan.model import FittedModel, Future
from enginebench.analysis.plan.requests import Band, Lengths, Requests, band, joined, not_above
from enginebench.analysis.plan.simulation import ClosedLoop, gamma_arrivals, serve
from enginebench.records.load import Load, Rate
from enginebench.records.metrics import TPOT, TTFT
from enginebench.records.rules import weighted_percentile
from enginebench.records.slo import Objective

FUTURES, FEW_FUTURES = 60, 20  # for the number of replicas; for other figures
SURE = 0.95  # share of futures that meet every objective
MAX_REQUESTS = 6000  # of one future; of larger fleets a part is simulated, whose shares vary more than the whole's
WARM_UP, ANSWERS = 30.0, 3  # the warm-up lasts at least as many seconds, and as many mean answers
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
    """The requests due in the window of one future, on some of the replicas."""

    requests: int
    seconds: float  # of the window
    in_flight: float  # time-average
    output: float  # tokens
    latencies: Mapping[str, npt.NDArray[np.float32]]  # seconds, by metric; `nan` if a request has none

    def within(self, objective: Objective) -> Flags:
        return not_above(self.latencies[objective.metric], objective.limit)


Parts = Sequence[tuple[Tally, float]]
"""Each tally with the number of replicas that it stands for."""


@dataclass(frozen=True, slots=True)
class Attainment:
    """How a fleet does in simulated futures.

    `met` is the share of futures in which every objective is met, `share` that of the requests within all of them.
    """

    replicas: int
    futures: int
    met: float
    share: Band
    in_flight: float  # time-average over all replicas
    output: float  # tokens/s of the fleet
    rate: float  # requests/s of the fleet
    ttft_p95: Band  # seconds
    tpot_p50: Band  # `nan` if answers have one token


@dataclass(eq=False, slots=True)
class Fleet:
    """Any number of replicas of one model under one peak; `tallies` keeps what was simulated."""

    fitted: FittedModel
    peak: Peak
    objectives: tuple[Objective, ...]
    max_requests: int = MAX_REQUESTS
    tallies: dict[tuple[float, int, int], Tally] = field(default_factory=dict, repr=False)

    def meets(self, replicas: int, future: int) -> bool:
        parts = self.parts(replicas, future)
        return all(share_within(parts, objective) >= objective.q for objective in self.objectives)

    def silent(self, replicas: int, future: int) -> bool:
        """Whether no request is due in the window on some replica."""
        return not all(tally.requests for tally, _ in self.parts(replicas, future))

    def met(self, replicas: int, futures: int) -> float:
        """Return the share of futures that meet every objective."""
        return sum(self.meets(replicas, future) for future in range(futures)) / futures

    def sustains(self, replicas: int, futures: int = FUTURES) -> bool:
        """Whether at least 95 % of the futures meet every objective; ends as soon as too many missed one."""
        allowed = math.floor((1 - SURE) * futures + 1e-9)
        missed = 0
        for future in range(futures):
            missed += not self.meets(replicas, future)
            if missed > allowed:
                return False
        return True

    def attainment(self, replicas: int, futures: int) -> Attainment:
        parts = [self.parts(replicas, future) for future in range(futures)]

        def mean(value: Callable[[Tally], float]) -> float:
            return sum(weight * value(tally) for future in parts for tally, weight in future) / futures

        return Attainment(
            replicas=replicas,
            futures=futures,
            met=self.met(replicas, futures),
            share=band([share_within(future, *self.objectives) for future in parts]),
            in_flight=mean(lambda tally: tally.in_flight),
            output=mean(lambda tally: tally.output / tally.seconds),
            rate=mean(lambda tally: tally.requests / tally.seconds),
            ttft_p95=_observed_band(_percentile(future, TTFT, 0.95) for future in parts),
            tpot_p50=_observed_band(_percentile(future, TPOT, 0.5) for future in parts),
        )

    def parts(self, replicas: int, future: int) -> Parts:
        """Simulate one future: the requests of a few replicas, and how many replicas each stands for."""
        load = self.peak.load
        if isinstance(load, Rate):
            parts = [(load.per_second, replicas, replicas / self._simulated(replicas))]
        else:
            fewest, more = divmod(load.count, replicas)
            shares = ((fewest + 1, more), (fewest, replicas - more))
            parts = [(float(users), 1, float(count)) for users, count in shares if users * count]
        return [(self._tally(value, count, Future(future)), weight) for value, count, weight in parts]

    def _tally(self, load: float, replicas: int, future: Future) -> Tally:
        key = (load, replicas, future.number)
        if key not in self.tallies:
            if isinstance(self.peak.load, Rate):
                requests, seconds = self._arrivals(replicas, future), self.peak.seconds
            else:
                requests, seconds = self._users(int(load), future)
            metrics = {TTFT, TPOT, *(objective.metric for objective in self.objectives)}
            self.tallies[key] = Tally(
                requests=len(requests.sched),
                seconds=seconds,
                in_flight=float((requests.last - requests.sched).sum()) / seconds,
                output=float(requests.lengths.output.sum()),
                latencies={metric: requests.latencies[metric].astype(np.float32) for metric in metrics},
            )
        return self.tallies[key]

    def _simulated(self, replicas: int) -> int:
        expected = self.peak.load.value * (WARM_UP + self.peak.seconds) / replicas
        return min(replicas, max(1, round(self.max_requests / expected)))

    def _arrivals(self, replicas: int, future: Future) -> Requests:
        """Each replica gets every n-th arrival of a Poisson process; some of a large fleet stand for all."""
        model, asked = future.drawn(self.fitted), self._lengths(future)

        def run(warm_up: float) -> Requests:
            rng, served = future.rng, []
            due = gamma_arrivals(self.peak.load.value, 1.0, warm_up + self.peak.seconds, rng)
            for turn in range(self._simulated(replicas)):
                own = due[turn::replicas]
                served.append(serve(model, own, asked.drawn(max(len(own), 1), rng), rng))
            return joined(served)

        return self._warmed_up(run)[0]

    def _users(self, users: int, future: Future) -> tuple[Requests, float]:
        """Of one replica: the requests of the window, and its length in seconds."""
        peak, model, asked = self.peak, future.drawn(self.fitted), self._lengths(future)

        def run(warm_up: float) -> Requests:
            rng, closed = future.rng, ClosedLoop(warm_up + peak.seconds, peak.think, warm_up, self.max_requests)
            starts, lengths = rng.uniform(0, peak.starts, users), asked.drawn(USER_LENGTHS, rng)
            return serve(model, starts, lengths, rng, closed)

        inside, start = self._warmed_up(run)
        if len(inside.sched) < self.max_requests:
            return inside, peak.seconds
        end = float(inside.sched[self.max_requests - 1])
        return inside.between(start, end), max(end - start, 1e-9)

    def _lengths(self, future: Future) -> Lengths:
        """Draw as many as were measured: other requests might have been measured as well."""
        lengths = self.peak.lengths
        return lengths.drawn(len(lengths), np.random.default_rng([future.seed, future.number, 1]))

    def _warmed_up(self, run: Callable[[float], Requests]) -> tuple[Requests, float]:
        """Return the requests due in the window, and when it begins. `run` simulates a warm-up of some seconds and the
        window; if a few answers take longer than that, it is called again with a longer one."""
        warm_up, requests = WARM_UP, run(WARM_UP)
        took = (requests.last - requests.sched)[requests.sched < WARM_UP + self.peak.seconds]
        took = took[np.isfinite(took)]
        if len(took) and (longer := ANSWERS * float(took.mean())) > warm_up:
            warm_up, requests = longer, run(longer)
        return requests.between(warm_up, warm_up + self.peak.seconds), warm_up


def share_within(parts: Parts, *objectives: Objective) -> float:
    """Return the share of the requests within all objectives; 0 if no request is due on some of the replicas."""
    if not all(tally.requests for tally, _ in parts):
        return 0.0
    total = sum(weight * tally.requests for tally, weight in parts)
    good = [np.logical_and.reduce([tally.within(objective) for objective in objectives]) for tally, _ in parts]
    return sum(weight * float(met.sum()) for met, (_, weight) in zip(good, parts, strict=True)) / total


def _percentile(parts: Parts, metric: str, q: float) -> float:
    """By nearest rank, each value with the weight of its replicas; `nan` without values."""
    values = np.concatenate([tally.latencies[metric] for tally, _ in parts])
    weights = np.concatenate([np.full(tally.requests, weight) for tally, weight in parts])
    known = ~np.isnan(values)
    order = np.argsort(values[known])
    if not len(order):
        return math.nan
    return weighted_percentile(values[known][order], np.cumsum(weights[known][order]), q)


def _observed_band(values: Iterable[float]) -> Band:
    """Over the futures that have a value; `nan` if none has."""
    return band([value for value in values if not math.isnan(value)] or [math.nan])
