"""The cheapest mix of replicas of several kinds (GPU types, engines, settings) that bears a peak.

What one replica of a kind bears is found by simulation of a fleet of that kind alone. The numbers of each kind are an
integer programme, and every part of the mix is then simulated at its share of the load.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from analysis.plan.engine.steps import Floats, Integers
from analysis.plan.fleet.replicas import BEYOND, MOST_REQUESTS, SEEDS_TO_LOCATE, Fleet, Measured
from analysis.units import significant
from records.load import Load, Users

HALVINGS = 5
ROUGHLY = 3000  # requests of one seed: the mix that comes of it is simulated with all
SHRINK = 0.97  # of what a replica bears, where its part of a mix missed an objective
ATTEMPTS = 12


@dataclass(frozen=True, slots=True)
class Kind:
    """`fleet` has the whole peak; `alone` is the number of replicas that it needs by itself."""

    name: str
    fleet: Fleet
    measured: Measured
    alone: int
    price: float  # of a replica, US dollars per hour


@dataclass(frozen=True, slots=True)
class Mix:
    """`replicas` by name, none with 0. `each` is the load that the balancer must give one replica of each."""

    replicas: Mapping[str, int]
    each: Mapping[str, float]
    per_hour: float
    share: float  # of all requests that meet every objective
    one_kind: tuple[str, int, float]  # the cheapest fleet of one kind: its name, replicas and price per hour

    @property
    def sentence(self) -> str:
        name, count, price = self.one_kind
        if len(self.replicas) < 2:
            return f"No mix costs less than {count} × {name} at ${significant(price)} an hour."
        parts = " + ".join(f"{count} × {kind}" for kind, count in self.replicas.items())
        saved = 1 - self.per_hour / price
        weights = ", ".join(f"{self.each[kind]:.3g} to each {kind}" for kind in self.replicas)
        return (
            f"Cheapest mix: {parts} at ${significant(self.per_hour)} an hour, {100 * saved:.0f} % less than {count} × "
            f"{name}; the balancer gives {weights}."
        )


def cheapest_mix(kinds: Sequence[Kind]) -> Mix:
    """Of at least one kind."""
    load = kinds[0].fleet.peak.load
    best = min(kinds, key=lambda kind: kind.alone * kind.price)
    alone = (best.name, best.alone, best.alone * best.price)
    borne = np.array([_borne(kind) for kind in kinds])
    prices = np.array([kind.price for kind in kinds])
    for _ in range(ATTEMPTS):
        counts = _fewest(prices, borne, load.value)
        if float(counts @ prices) >= alone[2] * (1 - 1e-9):
            break
        each = borne * load.value / float(counts @ borne)
        shares = [_share(kind, int(n), one) for kind, n, one in zip(kinds, counts, each, strict=True)]
        missed = [share is not None and not share[0] for share in shares]
        if not any(missed):
            weights = counts * each
            attained = sum(w * share[1] for w, share in zip(weights, shares, strict=True) if share is not None)
            used = [k for k, n in enumerate(counts) if n]
            return Mix(
                {kinds[k].name: int(counts[k]) for k in used},
                {kinds[k].name: float(each[k]) for k in used},
                float(counts @ prices),
                float(attained / weights.sum()),
                alone,
            )
        borne = np.where(missed, SHRINK * borne, borne)
    share = best.fleet.with_(best.alone, SEEDS_TO_LOCATE).share.median
    return Mix({best.name: best.alone}, {best.name: load.value / best.alone}, alone[2], share, alone)


def _fewest(prices: Floats, borne: Floats, load: float) -> Integers:
    """The cheapest whole numbers whose replicas bear the load together."""
    found = milp(prices, integrality=np.ones(len(prices)), bounds=Bounds(0), constraints=LinearConstraint(borne, load))
    return np.asarray(np.rint(found.x), dtype=np.int64)


def _borne(kind: Kind) -> float:
    """The most that one of `alone` replicas of a kind bears, as far as the records support."""
    load = kind.fleet.peak.load
    low = load.value / kind.alone
    high = min(load.value / max(kind.alone - 1, 0.5), BEYOND * kind.measured.per_replica(load))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if high <= low or not _at(kind.fleet, middle * kind.alone, ROUGHLY).with_(kind.alone, SEEDS_TO_LOCATE).met:
            high = middle
        else:
            low = middle
    return low


def _share(kind: Kind, count: int, each: float) -> tuple[bool, float] | None:
    """Whether `count` replicas with `each` of the load meet the objectives, and their attainment; `None` for none."""
    if not count:
        return None
    found = _at(kind.fleet, each * count).with_(count)
    return found.met, found.share.median


def _at(fleet: Fleet, load: float, most_requests: int = MOST_REQUESTS) -> Fleet:
    return replace(fleet, peak=replace(fleet.peak, load=_scaled(fleet.peak.load, load)), most_requests=most_requests)


def _scaled(load: Load, value: float) -> Load:
    return Users(max(round(value), 1)) if isinstance(load, Users) else replace(load, per_second=value)
