"""Two pools of replicas, one for short prompts and one for long ones.

Short requests then never wait behind the prefill of a long prompt, but each pool has a peak of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from analysis.plan.errors import CannotPlan
from analysis.plan.fleet.replicas import Attainment, Fleet, Measured, fewest_count
from analysis.plan.simulation.work import Lengths
from records.load import Rate

QUANTILES = (0.5, 0.75, 0.9)  # of the prompts, at which pools are split


@dataclass(frozen=True, slots=True)
class Pools:
    """The split that needs the fewest replicas in all. `short` serves prompts up to `limit` tokens."""

    limit: float
    short: Attainment
    long: Attainment
    one_pool: int  # replicas without a split

    @property
    def count(self) -> int:
        return self.short.replicas + self.long.replicas

    @property
    def share(self) -> float:
        """Of all requests, those that met every objective."""
        rates = np.array([self.short.rate, self.long.rate])
        return float(np.dot(rates, [self.short.share.median, self.long.share.median]) / rates.sum())

    @property
    def sentence(self) -> str:
        each = (
            f"{self.short.replicas} for prompts up to {self.limit:.0f} tokens and {self.long.replicas} for longer ones"
        )
        saved = self.one_pool - self.count
        gain = f"{saved} fewer than one pool" if saved > 0 else f"one pool needs {self.one_pool}: splitting saves none"
        return f"Two pools need {self.count} replicas, {each}; {gain}."


def two_pools(fleet: Fleet, measured: Measured, one_pool: int) -> Pools | None:
    """`None` where prompts are too alike to be split, or no split meets the objectives; for rates only."""
    prompts = fleet.peak.lengths.prompt
    if not isinstance(fleet.peak.load, Rate):
        raise CannotPlan("two pools are planned for a rate: give --peak as req/s.")
    found: list[tuple[int, float, Fleet, Fleet]] = []
    for limit in sorted({float(np.quantile(prompts, q, method="lower")) for q in QUANTILES}):
        short = prompts <= limit
        if short.all():
            continue
        short_part, long_part = (_part(fleet, fleet.peak.lengths.at(of), float(of.mean())) for of in (short, ~short))
        try:
            total = fewest_count(short_part, measured) + fewest_count(long_part, measured)
        except CannotPlan:
            continue
        found.append((total, limit, short_part, long_part))
    if not found:
        return None
    _, limit, short_part, long_part = min(found, key=lambda one: one[:2])
    served = [part.with_(_enough(part, measured)) for part in (short_part, long_part)]
    return Pools(limit, served[0], served[1], one_pool)


def _enough(part: Fleet, measured: Measured) -> int:
    """By all seeds."""
    count = fewest_count(part, measured)
    while not part.with_(count).met:
        count += 1
    return count


def _part(fleet: Fleet, lengths: Lengths, share: float) -> Fleet:
    load = fleet.peak.load
    assert isinstance(load, Rate)
    peak = replace(fleet.peak, load=replace(load, per_second=share * load.per_second), lengths=lengths)
    return replace(fleet, peak=peak)
