"""The figures of a load, computed alike from measured and from simulated requests, and bands of them over seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.plan.replica import Served
from analysis.plan.steps import Flags, Floats
from analysis.plan.work import Lengths
from records.rules import percentile
from records.slo import Objective

FIGURES = ("ttft_p50", "ttft_p95", "ttft_p99", "tpot_p50", "tpot_p95", "e2e_mean", "e2e_p95", "throughput", "rate")
BAND = (0.05, 0.95)  # of the seeds: nine in ten lie inside


@dataclass(frozen=True, slots=True)
class Requests:
    """Instants of requests in seconds, in the order in which they were due; +∞ for what never came."""

    sched: Floats
    first: Floats
    last: Floats
    lengths: Lengths

    def between(self, start: float, end: float) -> Requests:
        inside = (self.sched >= start) & (self.sched < end)
        return Requests(self.sched[inside], self.first[inside], self.last[inside], self.lengths.at(inside))

    @property
    def tpot(self) -> Floats:
        """Seconds per token after the first; `nan` for answers of one token."""
        with np.errstate(invalid="ignore", divide="ignore"):
            each = (self.last - self.first) / (self.lengths.output - 1)
        return np.where(self.lengths.output > 1, np.where(np.isfinite(self.last), each, math.inf), math.nan)


def requests_of(served: Served) -> Requests:
    return Requests(served.sched, served.first, served.last, served.lengths)


def figures(requests: Requests, start: float, end: float) -> dict[str, float]:
    """The figures of the requests due in [`start`, `end`), and of the tokens and answers that came in it.

    Durations count from when a request was due. A figure without a value is `nan`.
    """
    due = requests.between(start, end)
    ttft, tpot, e2e = np.sort(due.first - due.sched), due.tpot, due.last - due.sched
    tpot = np.sort(tpot[~np.isnan(tpot)])
    ended = (requests.last >= start) & (requests.last < end)
    return {
        "ttft_p50": _percentile(ttft, 0.5),
        "ttft_p95": _percentile(ttft, 0.95),
        "ttft_p99": _percentile(ttft, 0.99),
        "tpot_p50": _percentile(tpot, 0.5),
        "tpot_p95": _percentile(tpot, 0.95),
        "e2e_mean": float(e2e.mean()) if len(e2e) else math.nan,
        "e2e_p95": _percentile(np.sort(e2e), 0.95),
        "throughput": _tokens(requests, start, end) / (end - start),
        "rate": float(ended.sum()) / (end - start),
    }


def percentile_of(parts: Sequence[tuple[Floats, float]], q: float) -> float:
    """The percentile of several samples, each with the weight of one of its values; by nearest rank."""
    values = np.concatenate([part for part, _ in parts])
    weights = np.concatenate([np.full(len(part), weight) for part, weight in parts])
    known = ~np.isnan(values)
    order = np.argsort(values[known])
    if not len(order):
        return math.nan
    reached = np.cumsum(weights[known][order])
    return float(values[known][order][np.searchsorted(reached, q * reached[-1] * (1 - 1e-12))])


def _percentile(ascending: Floats, q: float) -> float:
    return percentile(ascending, q) if len(ascending) else math.nan


def _tokens(requests: Requests, start: float, end: float) -> float:
    """Output tokens that came in [`start`, `end`): the first at its instant, the rest spread evenly up to the last."""
    came = np.isfinite(requests.last)
    first, last, later = requests.first[came], requests.last[came], requests.lengths.output[came] - 1
    begin, stop = np.clip(first, start, end), np.clip(last, start, end)
    spread = np.divide(stop - begin, last - first, out=np.zeros(len(first)), where=last > first)
    return float(((first >= start) & (first < end)).sum() + (spread * later).sum())


def good(requests: Requests, objectives: Sequence[Objective]) -> Flags:
    """Whether each request met all objectives."""
    met = np.isfinite(requests.last)
    for objective in objectives:
        met &= within(requests, objective)
    return met


def within(requests: Requests, objective: Objective) -> Flags:
    """Whether each request met one objective: `records.slo.Objective.judge`, on columns."""
    answered = np.isfinite(requests.last)
    match objective.metric:
        case "ttft":
            value = requests.first - requests.sched
        case "e2e":
            value = requests.last - requests.sched
        case "ntpot":
            value = (requests.last - requests.sched) / requests.lengths.output
        case "tpot":
            value = np.nan_to_num(requests.tpot, nan=0.0, posinf=math.inf)
        case _:
            return answered
    return answered & (value <= objective.limit)


@dataclass(frozen=True, slots=True)
class Band:
    """The median over seeds, and the range of nine in ten of them."""

    median: float
    low: float
    high: float

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


def bands(of_seeds: Sequence[Mapping[str, float]]) -> dict[str, Band]:
    return {name: band([seed[name] for seed in of_seeds]) for name in of_seeds[0]}


def band(values: Sequence[float]) -> Band:
    """Ends are values that occurred: nearest ranks, outwards."""
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    n = len(ordered)
    low, high = ordered[math.floor(BAND[0] * (n - 1))], ordered[math.ceil(BAND[1] * (n - 1))]
    return Band(float(np.median(ordered)), float(low), float(high))
