"""The evidence of probes, an e-process: bets on the share of requests that miss an objective.

Latencies in one queue are correlated, so requests are judged in batches of consecutive ones. If at least a share α
misses an objective, Π(1 + β(α - X)) over the batches' shares X is a nonnegative supermartingale, and so is its mean
over several β: the probability that it ever reaches 1/δ is at most δ, at any number of looks (Ville; Waudby-Smith &
Ramdas 2024). In the same way, Π(1 + β(X - α)) is evidence for "missed". The proof needs independent batches, which
sufficiently large batches nearly are; simulations check that (docs/capacity-search.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

Side = Literal["below", "above"]
STAKES: dict[Side, tuple[float, ...]] = {"below": (0.5, 0.9), "above": (0.05, 0.15, 0.4)}  # shares of the highest stake
MIN_BATCH, CORRELATION_TIMES = 10, 1.0  # minimum length of batches: requests, and correlation times
GROUPS = 20  # groups of requests; their variance shows the correlation
SIGNIFICANT, STRONGEST = 0.4, 0.8  # autocorrelation of groups: where it begins to count, and its maximum
SLOW = 0.5  # share of a limit beyond which a request is slow


@dataclass(frozen=True)
class ProbeOutcomes:
    """The ended requests of a probe by slice of time, with the number that missed each objective and the number that
    were `SLOW`.

    `stay` is the mean seconds in flight of a request, `seconds` the total of the slices.
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
        """Return the shares of requests that missed each objective."""
        return tuple(sum(missed) / max(1, self.total) for missed in self.missed)

    def batches(self, objective: int, size: float) -> list[float]:
        """Return the share that missed the objective in each batch of at least `size` requests but the last."""
        return _batches(self.requests, self.missed[objective], size)

    @cached_property
    def correlation(self) -> float:
        """Return the correlation time τ, the number of consecutive requests that inform like one: the longest of all
        objectives. Before any request has missed an objective, only slow requests can show it."""
        return max(map(self._correlation, (*self.missed, *self.slow)))

    def _correlation(self, bad: Sequence[int]) -> float:
        """Compare the variance of groups with the variance of independent requests. Correlated groups are too short
        to show all of it: as in an AR(1) series, the long-run variance is (1 + φ)/(1 - φ) times the groups'."""
        p = sum(bad) / max(1, self.total)
        if p in {0.0, 1.0} or self.total < 2 * GROUPS:
            return 1.0
        residuals = [share - p for share in _batches(self.requests, bad, self.total // GROUPS)]
        n, power = len(residuals), sum(residual**2 for residual in residuals)
        if n < 2 or power == 0:
            return 1.0
        phi = sum(a * b for a, b in pairwise(residuals)) / power
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
    """Return the requests of a batch, in steps of √2, so that evidence is not computed again for every look."""
    factor = max(1.0, CORRELATION_TIMES * correlation / MIN_BATCH)
    return MIN_BATCH * 2 ** (math.ceil(2 * math.log2(factor)) / 2)


def log_evidence(shares: Sequence[float], alpha: float, side: Side) -> float:
    """Return the log evidence of one probe: that capacity is above its load (the probe is "below"), or under it.
    Several probes are added. Each is averaged over its own stakes, so a badly placed probe costs the others little."""
    most = 1 / (1 - alpha) if side == "below" else -1 / alpha
    return log_mean([sum(math.log1p(stake * most * (alpha - x)) for x in shares) for stake in STAKES[side]])


def log_mean(logs: Sequence[float]) -> float:
    """Return the logarithm of the mean of exp(logs)."""
    top = max(logs)
    return top + math.log(sum(math.exp(log - top) for log in logs) / len(logs))
