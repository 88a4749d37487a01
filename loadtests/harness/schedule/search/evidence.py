"""What probes have shown: bets on the share of requests that miss an objective.

Latencies in one queue are correlated, so requests are judged by batches of consecutive ones. If at least a share α
misses an objective, Π(1 + β(α - X)) over the batches' shares X is a nonnegative supermartingale, and so is its mean
over several β: it ever reaches 1/δ with probability δ at most, however often it is looked at (Ville; Waudby-Smith &
Ramdas 2024). Π(1 + β(X - α)) speaks for "missed" likewise. That is proven for batches that do not depend on one
another. How nearly they do not depends on their size, and is checked by simulation: see docs/capacity-search.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

Side = Literal["below", "above"]
STAKES: dict[Side, tuple[float, ...]] = {"below": (0.5, 0.9), "above": (0.05, 0.15, 0.4)}  # shares of the highest
SMALLEST_BATCH, CORRELATION_TIMES = 10, 1.0  # requests; batches are at least so many correlation times long
GROUPS = 20  # of requests, whose variance shows the correlation
SIGNIFICANT, STRONGEST = 0.4, 0.8  # autocorrelation of groups: from where on it counts, and as how much at most
SLOW = 0.5  # a request is slow beyond this share of a limit


@dataclass(frozen=True)
class ProbeOutcomes:
    """A probe's requests by slice of time, and for each objective how many missed it and how many were `SLOW`. All have
    ended.

    `stay` is the mean number of seconds that a request was in flight, `seconds` what the slices add up to.
    """

    requests: Sequence[int]
    missed: Sequence[Sequence[int]]
    slow: Sequence[Sequence[int]]
    stay: float = 0.0
    seconds: float = 0.0

    @cached_property
    def total(self) -> int:
        return sum(self.requests)

    @cached_property
    def shares(self) -> tuple[float, ...]:
        """Of the requests that missed each objective."""
        return tuple(sum(missed) / max(1, self.total) for missed in self.missed)

    def batches(self, objective: int, size: float) -> list[float]:
        """The shares that missed it in batches of at least `size` consecutive requests; the last one is left out."""
        return _batches(self.requests, self.missed[objective], size)

    @cached_property
    def correlation(self) -> float:
        """τ, the number of consecutive requests that are worth one: of the objective where it is the longest. Before
        the first request has missed an objective, only those that nearly did can show it."""
        return max(map(self._correlation, (*self.missed, *self.slow)))

    def _correlation(self, bad: Sequence[int]) -> float:
        """The variance of groups against that of independent requests. Groups that are alike are too short to show all
        of it: as of an AR(1) series, the long-run variance is (1 + φ)/(1 - φ) times as much."""
        p = sum(bad) / max(1, self.total)
        if p in {0.0, 1.0} or self.total < 2 * GROUPS:
            return 1.0
        residuals = [share - p for share in _batches(self.requests, bad, self.total // GROUPS)]
        n, power = len(residuals), sum(each**2 for each in residuals)
        if n < 2 or power == 0:
            return 1.0
        phi = sum(one * other for one, other in pairwise(residuals)) / power
        phi = min(phi, STRONGEST) if phi > SIGNIFICANT else 0.0
        return max(1.0, (1 + phi) / (1 - phi) * power / (n - 1) * self.total / n / (p * (1 - p)))


def _batches(requests: Sequence[int], bad: Sequence[int], size: float) -> list[float]:
    shares, n, missed = [], 0, 0
    for more, more_missed in zip(requests, bad, strict=True):
        n, missed = n + more, missed + more_missed
        if n >= size:
            shares.append(missed / n)
            n, missed = 0, 0
    return shares


def batch_size(correlation: float) -> float:
    """Requests; in steps of √2, so that evidence need not be computed again for every look."""
    factor = max(1.0, CORRELATION_TIMES * correlation / SMALLEST_BATCH)
    return SMALLEST_BATCH * 2 ** (math.ceil(2 * math.log2(factor)) / 2)


def log_evidence(shares: Sequence[float], alpha: float, side: Side) -> float:
    """Of one probe, its logarithm: for capacity above the probe's load ("below" it lies the probe), or under it. That
    of several probes is their sum; averaged in each, a probe that was placed badly spoils little of the others'."""
    most = 1 / (1 - alpha) if side == "below" else -1 / alpha
    return log_mean([sum(math.log1p(stake * most * (alpha - x)) for x in shares) for stake in STAKES[side]])


def log_mean(logs: Sequence[float]) -> float:
    """log of the mean of exp(logs)."""
    top = max(logs)
    return top + math.log(sum(math.exp(each - top) for each in logs) / len(logs))
