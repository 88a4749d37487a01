"""What was measured, without a model of the engine: throughput and attainment against load, each with its interval.

Throughput follows the Universal Scalability Law (Gunther 2007), X(N) = λN / (1 + σ(N − 1) + κN(N − 1)): σ is the share
of work that requests wait for one another, κ what each pair of them costs. N is the time-average of requests in flight.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from analysis.plan.engine.steps import Floats, Generator
from analysis.verdict.stages import StageSummary
from analysis.verdict.statistics import Estimate

DRAWS = 400
NORMAL = 1.96  # standard errors to either side hold 95 %
LEAST_STAGES = 3
NEGLIGIBLE = 1e-9  # κ that is only rounding


@dataclass(frozen=True, slots=True)
class Scalability:
    """`rate` is λ, tokens per second of one request alone; `peak` the number in flight with the highest throughput, +∞
    where it only levels off; `most` that throughput, or the limit that it approaches."""

    rate: Estimate
    contention: Estimate  # σ
    coherency: Estimate  # κ
    peak: Estimate
    most: Estimate

    def throughput(self, in_flight: float) -> float:
        rate, sigma, kappa = self.rate.value or 0.0, self.contention.value or 0.0, self.coherency.value or 0.0
        return _throughput(in_flight, rate, sigma, kappa)


def _throughput(n: float, rate: float, sigma: float, kappa: float) -> float:
    return rate * n / (1 + sigma * (n - 1) + kappa * n * (n - 1))


def scalability(stages: Sequence[StageSummary], seed: int = 0) -> Scalability | None:
    """`None` with fewer than three loads. Intervals by a bootstrap from those of the stages' throughputs."""
    rows = [(s.concurrency.average, s.throughput) for s in stages if s.throughput.value and s.concurrency.average > 0]
    if len({round(n, 1) for n, _ in rows}) < LEAST_STAGES:
        return None
    n = np.array([in_flight for in_flight, _ in rows])
    rng = np.random.default_rng(seed)
    estimates = [one for _, one in rows]
    found = _fitted(n, np.array([one.value for one in estimates]))
    drawn = np.array([_fitted(n, np.array([draw(one, rng) for one in estimates])) for _ in range(DRAWS)])
    return Scalability(*(_estimate(value, drawn[:, k], len(rows)) for k, value in enumerate(found)))


def _fitted(n: Floats, throughput: Floats) -> tuple[float, float, float, float, float]:
    """λ, σ, κ, and where and how high the peak is. N/X is linear in what is sought; errors count as shares of it."""
    inverse = n / np.maximum(throughput, 1e-9)
    # N/X = (u + vN + wN(N - 1)) with u, v, w ≥ 0 keeps σ = v/(u + v) between 0 and 1.
    rows = np.column_stack([np.ones(len(n)), n, n * (n - 1)]) / inverse[:, None]
    (own, shared, pairs), _ = nnls(rows, np.ones(len(n)))
    alone = max(own + shared, 1e-12)
    rate, sigma, kappa = 1 / alone, shared / alone, pairs / alone
    if kappa > NEGLIGIBLE:
        peak = max(math.sqrt(max(1 - sigma, 0.0) / kappa), 1.0)
        return rate, sigma, kappa, peak, _throughput(peak, rate, sigma, kappa)
    return rate, sigma, kappa, math.inf, rate / sigma if sigma > 0 else math.inf


def draw(estimate: Estimate, rng: Generator) -> float:
    """A value that the number may as well have had: its interval's halves as those of two normal distributions."""
    value, z = estimate.value or 0.0, float(rng.standard_normal())
    if estimate.low is None or estimate.high is None:
        return value
    return value + z * ((estimate.high - value) if z > 0 else (value - estimate.low)) / NORMAL


def _estimate(value: float, drawn: Floats, n: int) -> Estimate:
    low, high = np.quantile(drawn, [0.025, 0.975], method="inverted_cdf")
    return Estimate(value, float(low), float(high), n)


@dataclass(frozen=True, slots=True)
class SafeLoad:
    """The largest load of one replica that meets every objective, in `unit`; `None` where no measured load did, or all
    did (`why`)."""

    load: Estimate
    unit: str


def safe_load(stages: Sequence[StageSummary], seed: int = 0) -> SafeLoad | None:
    """From stages that differ in load alone; `None` where no objective was judged."""
    judged = sorted((s for s in stages if s.attainment is not None), key=lambda s: s.load)
    if not judged or len({s.load_unit for s in judged}) > 1:
        return None
    loads = np.array([s.load for s in judged])
    verdicts = list(zip(*(s.attainment.verdicts for s in judged if s.attainment is not None), strict=True))
    value = min(_crossing(loads, np.array([v.share.value or 0.0 for v in of]), of[0].objective.q) for of in verdicts)
    unit = judged[0].load_unit
    if value < loads[0]:
        return SafeLoad(Estimate(None, n=len(loads), why=f"missed at {loads[0]:g} {unit}, the lowest measured"), unit)
    rng = np.random.default_rng(seed)
    drawn = [
        min(_crossing(loads, np.array([draw(v.share, rng) for v in of]), of[0].objective.q) for of in verdicts)
        for _ in range(DRAWS)
    ]
    low, high = np.quantile(drawn, [0.025, 0.975], method="inverted_cdf")
    why = f"met at {loads[-1]:g} {unit}, the highest measured" if value >= loads[-1] else None
    return SafeLoad(Estimate(value, float(low), float(high), len(loads), why), unit)


def _crossing(loads: Floats, shares: Floats, q: float) -> float:
    """The load at which the share falls below `q`, between two measured ones by a straight line; 0 where it never was.

    Attainment does not rise with the load: neighbours that say so are averaged (pool adjacent violators).
    """
    falling = _falling(shares)
    if falling[0] < q:
        return 0.0
    below = np.flatnonzero(falling < q)
    if not len(below):
        return float(loads[-1])
    after = int(below[0])
    before = after - 1
    part = (falling[before] - q) / (falling[before] - falling[after])
    return float(loads[before] + part * (loads[after] - loads[before]))


def _falling(shares: Floats) -> Floats:
    blocks: list[tuple[float, int]] = []
    for share in shares.tolist():
        mean, count = share, 1
        while blocks and blocks[-1][0] < mean:
            earlier, many = blocks.pop()
            mean, count = (earlier * many + mean * count) / (many + count), many + count
        blocks.append((mean, count))
    return np.concatenate([np.full(count, mean) for mean, count in blocks])
