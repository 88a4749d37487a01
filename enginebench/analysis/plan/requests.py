"""Requests as the plan counts them: their lengths, the arrival of their tokens, and the figures of a load, computed
equally from measured and from simulated requests, with their spread over futures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from enginebench.analysis.arrays import Flags, Floats, Integers
from enginebench.analysis.data.formulas import columns_of, expression
from enginebench.analysis.plan.not_planned import CannotPlan, NotPlanned
from enginebench.analysis.plan.steps import Generator
from enginebench.records.metrics import E2E, OBJECTIVES, OUTPUT_TOKENS, THROUGHPUT, TPOT, TTFT
from enginebench.records.rules import percentile
from enginebench.records.slo import Objective
from enginebench.records.stage import SECOND

TTFT_P50, TTFT_P95, TPOT_P50, E2E_MEAN = f"{TTFT}_p50", f"{TTFT}_p95", f"{TPOT}_p50", f"{E2E}_mean"
FIGURES = {
    TTFT_P50: "TTFT p50",
    TTFT_P95: "TTFT p95",
    TPOT_P50: "TPOT p50",
    E2E_MEAN: "E2E mean",
    THROUGHPUT: "tokens/s",
}
"""The figures that judge a prediction, with titles."""
INSTANTS = ("sched", "first", "last")
KNOWN = {"t_sched", "t_first", "t_last", OUTPUT_TOKENS, "unseen_tokens", "first_chunk_tokens", "chunks"}
LATENCIES = {name: metric for name, metric in OBJECTIVES.items() if columns_of([metric.formula]) <= KNOWN}
"""The metrics that an objective of a plan may limit: those computed from fields of a simulation."""
SPREAD = (0.05, 0.95)  # nine in ten futures lie inside


@dataclass(frozen=True, slots=True)
class Lengths:
    """Lengths of prompts and answers, to draw from or to replay in order: one element for each request."""

    prefilled: Floats  # prompt tokens that the engine computes
    output: Floats

    def __len__(self) -> int:
        return len(self.output)

    def at(self, picked: Integers | Flags) -> Lengths:
        return Lengths(self.prefilled[picked], self.output[picked])

    def drawn(self, count: int, rng: Generator) -> Lengths:
        return self.at(rng.integers(len(self), size=count))


@dataclass(frozen=True, slots=True)
class Requests:
    """Instants of requests in seconds, in the order in which they were due; +∞ for events that never happened.

    `latencies` has the metrics of `LATENCIES`, in seconds: +∞ without an answer, `nan` if an answer has no such value.
    An answer of a single chunk has no time per token.
    """

    sched: Floats
    first: Floats
    last: Floats
    lengths: Lengths
    latencies: Mapping[str, Floats]

    @classmethod
    def simulated(
        cls, sched: Floats, first: Floats, last: Floats, lengths: Lengths, tokens_per_chunk: float = 1.0
    ) -> Requests:
        stamps = {"t_sched": sched * SECOND, "t_first": first * SECOND, "t_last": last * SECOND}
        records = pl.DataFrame(stamps | {OUTPUT_TOKENS: lengths.output}).with_columns(
            unseen_tokens=0.0, first_chunk_tokens=tokens_per_chunk, chunks=pl.lit(None, pl.Float64)
        )
        return cls(sched, first, last, lengths, latencies_of(records))

    def between(self, start: float, end: float) -> Requests:
        inside = (self.sched >= start) & (self.sched < end)
        sched, first, last = (getattr(self, name)[inside] for name in INSTANTS)
        latencies = {name: values[inside] for name, values in self.latencies.items()}
        return Requests(sched, first, last, self.lengths.at(inside), latencies)


def latencies_of(answered: pl.DataFrame) -> dict[str, Floats]:
    """Compute the latencies of records with the columns `KNOWN`. +∞ − ∞ means that no answer came."""
    columns = {
        name: expression(metric.formula).fill_nan(math.inf).fill_null(math.nan if metric.absent_is_good else math.inf)
        for name, metric in LATENCIES.items()
    }
    return {name: values.to_numpy() for name, values in answered.select(**columns).to_dict().items()}


def joined(parts: Sequence[Requests]) -> Requests:
    """Pool the requests of several replicas."""
    sched, first, last = (np.concatenate([getattr(part, name) for part in parts]) for name in INSTANTS)
    latencies = {name: np.concatenate([part.latencies[name] for part in parts]) for name in LATENCIES}
    return Requests(sched, first, last, pooled([part.lengths for part in parts]), latencies)


def pooled(parts: Sequence[Lengths]) -> Lengths:
    return Lengths(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("prefilled", "output")))


def figures(requests: Requests, start: float, end: float) -> dict[str, float]:
    """Compute the figures of the requests due in [`start`, `end`), and of the tokens that came within that time.

    Durations count from when a request was due. A figure without a value is `nan`, and so is a percentile of too few
    requests.
    """
    due = requests.between(start, end)
    ttft, tpot, e2e = (np.sort(due.latencies[name]) for name in (TTFT, TPOT, E2E))
    return {
        TTFT_P50: _percentile(ttft, 0.5),
        TTFT_P95: _percentile(ttft, 0.95),
        TPOT_P50: _percentile(tpot[~np.isnan(tpot)], 0.5),
        E2E_MEAN: float(e2e.mean()) if len(e2e) else math.nan,
        THROUGHPUT: _tokens(requests, start, end) / (end - start),
    }


def _percentile(ascending: Floats, q: float) -> float:
    """Return the nearest-rank percentile; `nan` unless at least one value is expected above it."""
    return percentile(ascending, q) if len(ascending) * (1 - q) >= 1 - 1e-9 else math.nan


def _tokens(requests: Requests, start: float, end: float) -> float:
    """Count output tokens that came in [`start`, `end`): the first at its instant, the others evenly up to the last."""
    came = np.isfinite(requests.last)
    first, last, later = requests.first[came], requests.last[came], requests.lengths.output[came] - 1
    begin, stop = np.clip(first, start, end), np.clip(last, start, end)
    spread = np.divide(stop - begin, last - first, out=np.zeros(len(first)), where=last > first)
    return float(((first >= start) & (first < end)).sum() + (spread * later).sum())


def simulated(objectives: Sequence[Objective]) -> tuple[Objective, ...]:
    """Return the objectives that a simulation, whose requests have no faults, can judge. Raises `CannotPlan` if there
    are none, or if one limits a metric that is not simulated and would count as met."""
    limits = tuple(objective for objective in objectives if objective.fault is None)
    if not limits or any(objective.metric not in LATENCIES for objective in limits):
        raise CannotPlan(NotPlanned.OBJECTIVE)
    return limits


@dataclass(frozen=True, slots=True)
class Band:
    """The median over futures, and the range of nine in ten of them."""

    median: float
    low: float
    high: float

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


def band(values: Sequence[float]) -> Band:
    """Return the band of values. Its ends are observed values, the next ones outwards from each quantile."""
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    low, high = math.floor(SPREAD[0] * (len(ordered) - 1)), math.ceil(SPREAD[1] * (len(ordered) - 1))
    return Band(float(np.median(ordered)), float(ordered[low]), float(ordered[high]))
