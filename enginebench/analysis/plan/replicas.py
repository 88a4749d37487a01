"""How many replicas a peak needs: the fewest with which nineteen in twenty simulated futures meet every objective."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from enginebench.analysis.plan.fleet import FEW_FUTURES, FUTURES, MEDIAN, SURE, Attainment, Fleet
from enginebench.analysis.plan.measured import SupportedLoads
from enginebench.analysis.plan.model import EngineModel, FittedModel
from enginebench.analysis.plan.settings import CannotPlan
from enginebench.records.formatting import format_share
from enginebench.records.load import Load, Users
from enginebench.records.slo import Objective

NEARLY_ALL = 0.99  # of the futures: the upper end of the range
CLEARLY = 0.8  # of few futures: at most this share meeting the objectives is too little without further ones
LOCATING = 4  # futures that tell roughly how many replicas are needed
STEP = 0.01  # share of a large fleet by which its size is searched
MOST_REPLICAS = 100_000
MORE_LOAD = 0.05  # share by which the peak may be exceeded before a fleet counts as one without a margin
REMEDIES = {"prefill": "faster prefill", "decode": "faster decoding", "slots": "more slots"}


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """With one replica less: the objective that is missed by most, and what would help most."""

    objective: Objective
    remedy: str

    @property
    def sentence(self) -> str:
        """`TTFT p95 ≤ 300 ms (more slots would help most)`"""
        return f"{self.objective.text} ({self.remedy} would help most)"


@dataclass(frozen=True, slots=True)
class SimulatedCapacity:
    """The load of one replica up to which at least 95 % of the futures meet every objective (`met`), and the next one
    that was simulated, at which they do not; `missed` is `None` where the records support no larger load."""

    unit: str
    met: float
    missed: float | None


@dataclass(frozen=True, slots=True)
class Margin:
    """The same fleet under a load that is 5 % above the planned one, in few futures."""

    load: Load
    met: float  # share of futures in which every objective is met
    slots_taken: int | None  # by the planned load; None where some are free, or not known

    @property
    def warning(self) -> str | None:
        """What makes the answer a knife edge; without a full stop."""
        parts = []
        if self.slots_taken is not None:
            parts.append(f"at the peak all {self.slots_taken} slots are taken: one user more waits for admission")
        if self.met < SURE:
            parts.append(
                f"the answer is on a knife edge: with {format_share(MORE_LOAD)} more load ({self.load.label}), "
                f"{format_share(self.met)} of the simulated futures meet every objective (--headroom plans for more)"
            )
        return "; ".join(parts) or None


@dataclass(frozen=True, slots=True)
class Replicas:
    """The answer: the fewest replicas with which 95 % of the futures meet every objective. `low` is the fewest for half
    of the futures, `high` for 99 % of them, `None` where twice as many do not.

    `bounded` is true where fewer replicas would each bear more than the records support, so that fewer may do.
    """

    count: int
    low: int
    high: int | None
    chosen: Attainment
    fewer: Attainment | None  # with one replica less, 1 % of a large fleet; None where the records do not support it
    limited_by: Bottleneck | None
    bounded: bool
    margin: Margin
    capacity: SimulatedCapacity


def fewest_replicas(fleet: Fleet, supported: SupportedLoads) -> Replicas:
    """Raises `CannotPlan` where no number of replicas helps, with the reason."""
    load = fleet.peak.load
    floor = supported.fewest(load)
    most = max(floor, _most(load))
    located = first(lambda k: fleet.met(k, LOCATING) >= MEDIAN, floor, most)
    if located is None:
        raise CannotPlan(_too_short(fleet, most, LOCATING, MEDIAN) or _hopeless(fleet, most))
    step = max(1, round(STEP * located))  # of a large fleet, the ends of the range are as coarse
    more = first(lambda k: fleet.holds(located + k * step, SURE), 0, (most - located) // step)
    if more is None:
        raise CannotPlan(_too_short(fleet, most, FUTURES, SURE) or _uncertain(fleet, most))
    count = located + more * step
    while count - step >= floor and fleet.holds(count - step, SURE):
        count -= step
    low = count
    while low - step >= floor and fleet.met(low - step, FEW_FUTURES) >= MEDIAN:
        low -= step
    above = first(lambda k: fleet.holds(count + k * step, NEARLY_ALL), 0, (count + 1) // step)
    fewer = _fewer(fleet, count - step) if count - step >= floor else None
    return Replicas(
        count,
        low,
        None if above is None else count + above * step,
        fleet.attainment(count, FUTURES),
        fewer,
        None if fewer is None else _bottleneck(fleet, fewer),
        count == floor and floor > 1,
        _margin(fleet, count),
        _capacity(fleet, supported, count, fewer),
    )


def _fewer(fleet: Fleet, replicas: int) -> Attainment:
    """From few futures where those tell that too many miss, else from all that the answer was taken from."""
    return fleet.attainment(replicas, FEW_FUTURES if fleet.met(replicas, FEW_FUTURES) <= CLEARLY else FUTURES)


def first(true: Callable[[int], bool], low: int, most: int) -> int | None:
    """The least number from `low` to `most` for which it is true, and stays so; `None` where it never is."""
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
    """Replicas beyond which each has hardly anything to do."""
    return load.count if isinstance(load, Users) else min(MOST_REPLICAS, max(64, math.ceil(100 * load.value)))


def _too_short(fleet: Fleet, most: int, futures: int, share: float) -> str | None:
    """Where futures in which no request is due are what is lacking."""
    silent = sum(not fleet.asked(most, future) for future in range(futures)) / futures
    if not silent or fleet.met(most, futures) + silent < share:
        return None
    return (
        f"the peak of {fleet.peak.seconds:g} s is too short: in {format_share(silent)} of the simulated futures no "
        "request is due in it on some of the replicas. Plan for a longer one (--peak-seconds)."
    )


def _hopeless(fleet: Fleet, most: int) -> str:
    alone = fleet.attainment(most, LOCATING)
    missed = [
        f"{objective} ({format_share(share.median)} within)"
        for objective, share in zip(fleet.objectives, alone.of, strict=True)
        if share.median < objective.q
    ]
    return (
        f"no number of replicas meets {', '.join(missed or map(str, fleet.objectives))}: an answer takes longer even "
        "on a replica with nothing else to do. A faster engine, shorter answers or a wider objective would help."
    )


def _uncertain(fleet: Fleet, most: int) -> str:
    met = fleet.met(most, FUTURES)
    return (
        f"no number of replicas meets {', '.join(map(str, fleet.objectives))} in {format_share(SURE)} of the simulated "
        f"futures: even a replica with nothing else to do meets it in {format_share(met)} of them only, so little is "
        "known of the engine's speed. Measure longer, on a quiet machine, or plan for a wider objective."
    )


def _bottleneck(fleet: Fleet, fewer: Attainment) -> Bottleneck:
    """Tried: prefill or decoding at half the cost, or twice the slots."""
    shortfall = [objective.q - share.median for objective, share in zip(fleet.objectives, fewer.of, strict=True)]
    objective = fleet.objectives[max(range(len(shortfall)), key=shortfall.__getitem__)]

    def prefill(model: EngineModel) -> EngineModel:
        cost = model.cost
        return replace(model, cost=replace(cost, per_token=cost.per_token / 2, per_prompt=cost.per_prompt / 2))

    def decode(model: EngineModel) -> EngineModel:
        cost = model.cost
        return replace(model, cost=replace(cost.scaled(0.5), per_token=cost.per_token, per_prompt=cost.per_prompt))

    def slots(model: EngineModel) -> EngineModel:
        return replace(model, slots=2 * (model.slots or 0))

    tried = [prefill, decode, *([slots] if fleet.fitted.model.slots is not None else [])]
    gained = {
        easier.__name__: replace(fleet, fitted=_changed(fleet.fitted, easier), tallies={})
        .attainment(fewer.replicas, LOCATING)
        .share.median
        for easier in tried
    }
    return Bottleneck(objective, REMEDIES[max(gained, key=lambda name: gained[name])])


def _changed(fitted: FittedModel, change: Callable[[EngineModel], EngineModel]) -> FittedModel:
    return replace(fitted, model=change(fitted.model), draws=tuple(map(change, fitted.draws)))


def more_load(load: Load, share: float) -> Load:
    """At least one user more, where there is a share more at all."""
    if isinstance(load, Users):
        return Users(math.ceil(round(load.count * (1 + share), 9)))
    return load.scaled(1 + share)


def _margin(fleet: Fleet, count: int) -> Margin:
    load, slots = fleet.peak.load, fleet.fitted.model.slots
    more = more_load(load, MORE_LOAD)
    exceeded = replace(fleet, peak=replace(fleet.peak, load=more))
    taken = slots is not None and isinstance(load, Users) and load.count >= slots * count
    return Margin(more, exceeded.met(count, FEW_FUTURES), slots * count if slots is not None and taken else None)


def _capacity(fleet: Fleet, supported: SupportedLoads, count: int, fewer: Attainment | None) -> SimulatedCapacity:
    """Users are simulated one by one on a replica alone; a rate is that of a replica in the fleet, and in the smaller
    one that misses."""
    load = fleet.peak.load
    if not isinstance(load, Users):
        missed = load.value / fewer.replicas if fewer is not None else None
        return SimulatedCapacity(load.unit, load.value / count, missed)
    most = max(1, math.floor(supported.largest(load) + 1e-9))

    def misses(users: int) -> bool:
        return not replace(fleet, peak=replace(fleet.peak, load=Users(users))).holds(1, SURE)

    start = min(max(1, load.count // count), most)
    if misses(start):
        start = 1
    missed_at = first(misses, start, most)
    return SimulatedCapacity(
        load.unit, float(most if missed_at is None else missed_at - 1), missed_at and float(missed_at)
    )
