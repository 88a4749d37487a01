"""How many replicas a peak needs: the fewest whose simulated requests meet every objective."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from analysis.plan.balancing import serve_fleet
from analysis.plan.errors import CannotPlan
from analysis.plan.model import EngineModel
from analysis.plan.outcome import Band, Requests, band, good, percentile_of, requests_of, within
from analysis.plan.replica import serve_users
from analysis.plan.settings import Balancer
from analysis.plan.steps import Flags, Floats
from analysis.plan.trials import Trial, trials
from analysis.plan.work import Lengths
from records.formatting import format_share
from records.load import Load, Rate, Users
from records.slo import Objective

BEYOND = 1.5  # times the largest measured load of a replica, up to which predictions are made
SEEDS, SEEDS_TO_LOCATE = 20, 4
MOST_REQUESTS = 12_000  # of one seed; of larger fleets, a part is simulated
STEP = 0.01  # share of a large fleet by which its size is searched
LEAST_TOGETHER = 8  # replicas that stand for a larger fleet, where the balancer looks at them all
MOST_REPLICAS = 100_000
WARM_UP = 30.0  # seconds
NOTHING = Band(math.nan, math.nan, math.nan)


@dataclass(frozen=True, slots=True)
class Peak:
    """What a fleet must bear: `load` in all, for `seconds`, and what is asked."""

    load: Load
    lengths: Lengths
    seconds: float = 300.0
    starts: float = 5.0  # seconds over which users come
    think: Floats = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True, slots=True)
class Measured:
    """The largest loads of one replica that were measured."""

    users: float
    rate: float  # requests per second

    def per_replica(self, load: Load) -> float:
        return self.users if isinstance(load, Users) else self.rate

    def fewest(self, load: Load) -> int:
        """Replicas below which each would bear more than the records support."""
        return max(1, math.ceil(round(load.value / (BEYOND * max(self.per_replica(load), 1e-9)), 9)))


@dataclass(frozen=True, slots=True)
class Attainment:
    """Share of the requests that met all objectives, and each of them, with `replicas`."""

    replicas: int
    share: Band
    of: tuple[Band, ...]
    objectives: tuple[Objective, ...]
    in_flight: float  # time-average over all replicas
    output: float  # tokens per second of the fleet
    prompts: float  # prompt tokens per second
    rate: float  # answers per second
    ttft_p95: Band = NOTHING  # seconds
    tpot_p50: Band = NOTHING

    @property
    def met(self) -> bool:
        """By the median seed."""
        return all(one.median >= objective.q for one, objective in zip(self.of, self.objectives, strict=True))

    @property
    def surely(self) -> bool:
        return all(one.low >= objective.q for one, objective in zip(self.of, self.objectives, strict=True))

    @property
    def possibly(self) -> bool:
        return all(one.high >= objective.q for one, objective in zip(self.of, self.objectives, strict=True))


@dataclass(frozen=True, slots=True)
class Replicas:
    """The answer: the fewest replicas by the median seed, and the range by nine in ten of them.

    `bounded` is true where fewer replicas would each bear more than was measured, so that fewer may do.
    """

    count: int
    low: int
    high: int
    chosen: Attainment
    fewer: Attainment | None  # with one replica less, 1 % of a large fleet; None where the records do not support it
    limited_by: str | None
    bounded: bool


@dataclass(eq=False, slots=True)
class Fleet:
    """Attainment of any number of replicas of one model at one peak; each is simulated once."""

    model: EngineModel
    peak: Peak
    objectives: tuple[Objective, ...]
    balancer: Balancer
    most_requests: int = MOST_REQUESTS
    _known: dict[tuple[int, int], Attainment] = field(default_factory=dict, init=False)

    def with_(self, replicas: int, seeds: int = SEEDS) -> Attainment:
        if (replicas, seeds) not in self._known:
            found = [self.served(replicas, trial) for trial in trials(seeds)]
            self._known[replicas, seeds] = self._judged(replicas, found)
        return self._known[replicas, seeds]

    def served(self, replicas: int, trial: Trial) -> list[tuple[Requests, float]]:
        """Requests, and how many replicas each of theirs stands for."""
        model, rng = trial.model(self.model), trial.rng
        peak, until = self.peak, WARM_UP + self.peak.seconds
        if isinstance(peak.load, Rate):
            least = LEAST_TOGETHER if self.balancer == "least_requests" else 1
            rate = peak.load.per_second
            simulated = min(replicas, max(least, round(self.most_requests * replicas / (rate * until))))
            served = serve_fleet(model, rate, until, peak.lengths, replicas, self.balancer, rng, simulated)
            return [(served, replicas / simulated)]
        fewest, more = divmod(peak.load.count, replicas)
        found = []
        for users, count in ((fewest + 1, more), (fewest, replicas - more)):
            if users and count:
                starts = rng.uniform(0, peak.starts, users)
                lengths = peak.lengths.drawn(8192, rng)
                found.append((requests_of(serve_users(model, starts, lengths, until, peak.think, rng)), float(count)))
        return found

    def _judged(self, replicas: int, seeds: Sequence[Sequence[tuple[Requests, float]]]) -> Attainment:
        due = [
            [(part.between(WARM_UP, WARM_UP + self.peak.seconds), weight) for part, weight in seed] for seed in seeds
        ]
        seconds = self.peak.seconds * len(due)
        everyone = [one for seed in due for one in seed]

        def share(of: Callable[[Requests], Flags]) -> Band:
            return band([share_of([(of(part), weight) for part, weight in seed]) for seed in due])

        def percentile(of: Callable[[Requests], Floats], q: float) -> Band:
            return band([percentile_of([(of(part), weight) for part, weight in seed], q) for seed in due])

        return Attainment(
            replicas,
            share(partial(good, objectives=self.objectives)),
            tuple(share(partial(within, objective=one)) for one in self.objectives),
            self.objectives,
            sum(weight * float((part.last - part.sched).sum()) for part, weight in everyone) / seconds,
            sum(weight * float(part.lengths.output.sum()) for part, weight in everyone) / seconds,
            sum(weight * float(part.lengths.prompt.sum()) for part, weight in everyone) / seconds,
            sum(weight * len(part.sched) for part, weight in everyone) / seconds,
            percentile(lambda part: part.first - part.sched, 0.95),
            percentile(lambda part: part.tpot, 0.5),
        )


def share_of(parts: Sequence[tuple[Flags, float]]) -> float:
    """The share of true values, each part with how many replicas it stands for."""
    total = sum(weight * len(values) for values, weight in parts)
    return sum(weight * float(values.sum()) for values, weight in parts) / total if total else 1.0


def fewest_replicas(fleet: Fleet, measured: Measured) -> Replicas:
    """Raises `CannotPlan` where no number of replicas helps, with the reason."""
    floor = measured.fewest(fleet.peak.load)
    count = fewest_count(fleet, measured)
    step = max(1, round(STEP * count))  # of a large fleet, the ends of the range are as coarse
    while not fleet.with_(count).met:
        count += step
    while count - step >= floor and fleet.with_(count - step).met:
        count -= step
    low, high = count, count
    while low - step >= floor and fleet.with_(low - step).possibly:
        low -= step
    while not fleet.with_(high).surely and high < 2 * count + 2:
        high += step
    fewer = fleet.with_(count - step) if count - step >= floor else None
    limited = _limited_by(fleet, fewer.replicas) if fewer is not None else None
    return Replicas(count, low, high, fleet.with_(count), fewer, limited, count == floor and floor > 1)


def fewest_count(fleet: Fleet, measured: Measured) -> int:
    """The same by a few seeds. Raises `CannotPlan`."""
    floor = measured.fewest(fleet.peak.load)
    count = _first(lambda k: fleet.with_(k, SEEDS_TO_LOCATE).met, floor, max(floor, _most(fleet)))
    if count is None:
        raise CannotPlan(_hopeless(fleet))
    return count


def _most(fleet: Fleet) -> int:
    """Replicas beyond which each has hardly anything to do."""
    load = fleet.peak.load
    return load.count if isinstance(load, Users) else min(MOST_REPLICAS, max(64, math.ceil(100 * load.value)))


def _first(met: Callable[[int], bool], low: int, most: int) -> int | None:
    """The least number from `low` on with `met`, which stays true once it is."""
    if met(low):
        return low
    step, below = 1, low
    while not met(min(below + step, most)):
        if below + step >= most:
            return None
        below, step = below + step, 2 * step
    high = min(below + step, most)
    while high - below > 1:
        middle = (below + high) // 2
        below, high = (below, middle) if met(middle) else (middle, high)
    return high


def _hopeless(fleet: Fleet) -> str:
    alone = fleet.with_(_most(fleet), SEEDS_TO_LOCATE)
    missed = [
        f"{objective} ({format_share(one.median)} within)"
        for objective, one in zip(fleet.objectives, alone.of, strict=True)
        if one.median < objective.q
    ]
    return (
        f"no number of replicas meets {', '.join(missed)}: an answer takes longer even on a replica with nothing else "
        "to do. A faster engine, shorter answers or a wider objective would help."
    )


def _limited_by(fleet: Fleet, replicas: int) -> str:
    """What helps most where replicas are missing: prefill or decode at half the cost, or twice the slots."""
    model = fleet.model
    cost = model.cost
    easier = {
        "prefill": replace(model, cost=replace(cost, per_token=cost.per_token / 2, per_prompt=cost.per_prompt / 2)),
        "decode": replace(
            model,
            cost=replace(cost.scaled(0.5), per_token=cost.per_token, per_prompt=cost.per_prompt),
        ),
    }
    if model.slots is not None:
        easier["slots"] = replace(model, slots=2 * model.slots)
    gained = {
        name: replace(fleet, model=each).with_(replicas, SEEDS_TO_LOCATE).share.median for name, each in easier.items()
    }
    return max(gained, key=lambda name: gained[name])
