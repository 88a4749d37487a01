"""What a probe has shown so far, and its effective number of independent requests.

Latencies in one queue are correlated: at capacity, thousands of requests carry the information of dozens. Counts are
kept by equal slices of time, in the order in which requests were scheduled. From sums over batches of slices comes the
correlation time τ, the number of requests that are worth one (batch means, Law & Kelton).

Batches that are short against the correlation show too little of it. Their lag-1 autocorrelation φ shows that: the
long-run variance of an AR(1) series is (1 + φ)/(1 - φ) times that of independent values, which corrects τ (as in
N-Skart: Tafazzoli, Steiger & Wilson 2011).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

CEILING = 3.0  # a latency counts at most as so many times its limit, as a failure does: its variance must be finite
BATCHES = (10, 20, 40)
LEAST_CORRECTED = 20  # batches whose autocorrelation is measured; that of fewer is mostly noise
STRONGEST = 0.9  # autocorrelation of batches, at most
CERTAINTY = math.log(120)  # evidence of a certificate, at an error of 0.05/6
DISCARDED = 0.1  # share of a probe, after its warm-up
DRIFT_BATCHES = 16
DRIFT = 6.0  # t statistic of the growth of the backlog, of 1 in 100 000 if it is a random walk
ALL_LATE = 0.9


@dataclass(slots=True)
class Series:
    """One objective's counts by slice of time. `level` sums latency ÷ limit, cut at `CEILING`, `squares` its square."""

    bad: Sequence[int]
    level: Sequence[float]
    squares: Sequence[float]


@dataclass(slots=True)
class Evidence:
    """`requests` were scheduled in each slice, and all have ended; one `Series` for each objective.

    `in_flight` goes on to the present: requests without an answer at the end of each slice.
    """

    requests: Sequence[int]
    series: Sequence[Series]
    in_flight: Sequence[int] = field(default=())

    @property
    def total(self) -> int:
        return sum(self.requests)


@dataclass(frozen=True, slots=True)
class Share:
    """One objective in one probe: the share of requests that met it, and its effective number of requests."""

    good: float
    effective: float
    correlation: float  # τ, requests

    @property
    def counts(self) -> tuple[float, float]:
        """Effective numbers of good and of bad requests."""
        return self.good * self.effective, (1 - self.good) * self.effective


def settled(evidence: Evidence) -> Evidence:
    """Without its first slices, in which the queue may still fill."""
    first = int(DISCARDED * len(evidence.requests))
    series = [Series(each.bad[first:], each.level[first:], each.squares[first:]) for each in evidence.series]
    return Evidence(evidence.requests[first:], series, evidence.in_flight[first:])


def shares(evidence: Evidence) -> list[Share]:
    """Each objective's share. An objective that no request has missed shows no correlation of its own: it takes the
    longest of the others."""
    evidence = settled(evidence)
    total = evidence.total
    found = [_correlation(evidence.requests, each, total) for each in evidence.series]
    longest = max(found, default=1.0)
    answer = []
    for each, own in zip(evidence.series, found, strict=True):
        bad = sum(each.bad)
        tau = own if bad else longest
        answer.append(Share(1 - bad / total, total / tau, tau))
    return answer


def _correlation(requests: Sequence[int], series: Series, total: int) -> float:
    """τ of the indicator "met the limit" and of the latency itself, whichever is longer, and at least 1."""
    count = max((each for each in BATCHES if each <= len(requests)), default=0)
    size = len(requests) // max(count, 1)
    share, level = sum(series.bad) / total, sum(series.level) / total
    variances = (share * (1 - share), sum(series.squares) / total - level**2)
    n, *sums = (batches(each, count, size) for each in (requests, series.bad, series.level))
    longest = 1.0
    while len(n) in BATCHES:
        for of_batches, variance in zip(sums, variances, strict=True):
            if variance > 1e-9:
                longest = max(longest, _uncertainty(len(n)) * _inflation(n, of_batches, variance))
        n, *sums = (batches(each, len(n) // 2, 2) for each in (n, *sums))
    return longest


def _uncertainty(count: int) -> float:
    """By how much more evidence is needed because the variance is that of so few batches.

    With a known variance the logarithm of a likelihood ratio is t²/2; with an estimated one, of ν degrees of freedom,
    it is (ν + 1)/2 · ln(1 + t²/ν), that of Student's t (Lai 1976). The ratio where the latter reaches `CERTAINTY`:
    1.51 for 10 batches, 1.22 for 20, 1.10 for 40.
    """
    freedom = count - 1
    return freedom * math.expm1(2 * CERTAINTY / count) / (2 * CERTAINTY)


def batches(values: Sequence[float], count: int, size: int) -> list[float]:
    """Sums over `count` batches of `size` slices, the first slices left out where they are too many."""
    first = len(values) - count * size
    return [sum(values[at : at + size]) for at in range(first, len(values), size)]


def _inflation(requests: Sequence[float], sums: Sequence[float], variance: float) -> float:
    """Long-run variance of the sums of batches, against what independent requests of this variance would have."""
    n, m = sum(requests), len(sums)
    if n == 0:
        return 1.0
    mean = sum(sums) / n
    residuals = [s - mean * k for s, k in zip(sums, requests, strict=True)]
    power = sum(each**2 for each in residuals)
    inflation = power * m / (m - 1) / (n * variance)
    if m < LEAST_CORRECTED or power == 0:
        return inflation
    autocorrelation = sum(one * other for one, other in pairwise(residuals)) / power
    unbiased = (autocorrelation + 1 / m) / (1 - 3 / m)  # Marriott & Pope 1954, Kendall 1954
    phi = min(max(unbiased, 0.0), STRONGEST)
    return inflation * (1 + phi) / (1 - phi)


def overloaded(evidence: Evidence) -> bool:
    """Whether the backlog grows without end: it drifts upward beyond any random walk, and what ends is late."""
    backlog = evidence.in_flight
    size = len(backlog) // (DRIFT_BATCHES + 1)
    if size == 0 or evidence.total < 1:
        return False
    levels = [each / size for each in batches(backlog, DRIFT_BATCHES + 1, size)]
    steps = [after - before for before, after in pairwise(levels)]
    mean = sum(steps) / DRIFT_BATCHES
    variance = sum((step - mean) ** 2 for step in steps) / (DRIFT_BATCHES - 1)
    if mean <= 0 or mean < DRIFT * math.sqrt(variance / DRIFT_BATCHES):
        return False
    last = len(evidence.requests) * 3 // 4
    recent = sum(evidence.requests[last:])
    return recent > 0 and any(sum(each.bad[last:]) >= ALL_LATE * recent for each in evidence.series)
