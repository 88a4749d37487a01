"""Requests as the plan counts them: what they ask, when their tokens came, and the figures of a load, computed alike
from measured and from simulated requests, with bands of them over futures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from enginebench.analysis.arrays import Flags, Floats, Integers
from enginebench.analysis.data.formulas import columns_of, expression
from enginebench.analysis.plan.settings import CannotPlan
from enginebench.analysis.plan.steps import Generator
from enginebench.records.formatting import in_words
from enginebench.records.metrics import OBJECTIVES
from enginebench.records.rules import percentile
from enginebench.records.slo import FAILURES, Objective
from enginebench.records.stage import SECOND

FIGURES = ("ttft_p50", "ttft_p95", "ttft_p99", "tpot_p50", "tpot_p95", "e2e_mean", "e2e_p95", "throughput", "rate")
INSTANTS = ("sched", "first", "last")
KNOWN = {"t_sched", "t_first", "t_last", "output_tokens", "unseen_tokens", "first_chunk_tokens", "chunks"}
LATENCIES = {name: metric for name, metric in OBJECTIVES.items() if columns_of([metric.formula]) <= KNOWN}
"""What an objective of a plan may limit: the metrics that a simulation has the fields of the record for."""
BAND = (0.05, 0.95)  # of the futures: nine in ten lie inside


@dataclass(frozen=True, slots=True)
class Lengths:
    """Prompts and answers to draw requests from, or to replay in order: one element a request."""

    prefilled: Floats  # prompt tokens that the engine computes
    prompt: Floats
    output: Floats

    def __len__(self) -> int:
        return len(self.output)

    def at(self, picked: Integers | Flags) -> Lengths:
        return Lengths(self.prefilled[picked], self.prompt[picked], self.output[picked])

    def drawn(self, count: int, rng: Generator) -> Lengths:
        return self.at(rng.integers(len(self), size=count))


@dataclass(frozen=True, slots=True)
class Requests:
    """Instants of requests in seconds, in the order in which they were due; +∞ for what never came.

    `latencies` are those of `LATENCIES`, in seconds: +∞ where no answer came, `nan` where an answer has none, as one of
    a single chunk has no time per token, and so none that is long.
    """

    sched: Floats
    first: Floats
    last: Floats
    lengths: Lengths
    latencies: Mapping[str, Floats]

    @classmethod
    def served(
        cls, sched: Floats, first: Floats, last: Floats, lengths: Lengths, tokens_per_chunk: float = 1.0
    ) -> Requests:
        """Simulated requests."""
        stamps = {"t_sched": sched * SECOND, "t_first": first * SECOND, "t_last": last * SECOND}
        records = pl.DataFrame(stamps | {"output_tokens": lengths.output}).with_columns(
            unseen_tokens=0.0, first_chunk_tokens=tokens_per_chunk, chunks=pl.lit(None, pl.Float64)
        )
        return cls(sched, first, last, lengths, latencies_of(records))

    def between(self, start: float, end: float) -> Requests:
        inside = (self.sched >= start) & (self.sched < end)
        sched, first, last = (getattr(self, name)[inside] for name in INSTANTS)
        latencies = {name: values[inside] for name, values in self.latencies.items()}
        return Requests(sched, first, last, self.lengths.at(inside), latencies)


def latencies_of(answered: pl.DataFrame) -> dict[str, Floats]:
    """Of records, with the columns `KNOWN`. +∞ − ∞ is nothing that came."""
    columns = {
        name: expression(metric.formula).fill_nan(math.inf).fill_null(math.nan if metric.absent_is_good else math.inf)
        for name, metric in LATENCIES.items()
    }
    return {name: values.to_numpy() for name, values in answered.select(**columns).to_dict().items()}


def joined(parts: Sequence[Requests]) -> Requests:
    """The requests of several replicas."""
    sched, first, last = (np.concatenate([getattr(part, name) for part in parts]) for name in INSTANTS)
    latencies = {name: np.concatenate([part.latencies[name] for part in parts]) for name in LATENCIES}
    return Requests(sched, first, last, pooled([part.lengths for part in parts]), latencies)


def pooled(parts: Sequence[Lengths]) -> Lengths:
    return Lengths(*(np.concatenate([getattr(p, name) for p in parts]) for name in ("prefilled", "prompt", "output")))


def figures(requests: Requests, start: float, end: float) -> dict[str, float]:
    """The figures of the requests due in [`start`, `end`), and of the tokens and answers that came in it.

    Durations count from when a request was due. A figure without a value is `nan`.
    """
    due = requests.between(start, end)
    ttft, tpot, e2e = (np.sort(due.latencies[name]) for name in ("ttft", "tpot", "e2e"))
    tpot = tpot[~np.isnan(tpot)]
    ended = (requests.last >= start) & (requests.last < end)
    return {
        "ttft_p50": _percentile(ttft, 0.5),
        "ttft_p95": _percentile(ttft, 0.95),
        "ttft_p99": _percentile(ttft, 0.99),
        "tpot_p50": _percentile(tpot, 0.5),
        "tpot_p95": _percentile(tpot, 0.95),
        "e2e_mean": float(e2e.mean()) if len(e2e) else math.nan,
        "e2e_p95": _percentile(e2e, 0.95),
        "throughput": _tokens(requests, start, end) / (end - start),
        "rate": float(ended.sum()) / (end - start),
    }


def _percentile(ascending: Floats, q: float) -> float:
    return percentile(ascending, q) if len(ascending) else math.nan


def _tokens(requests: Requests, start: float, end: float) -> float:
    """Output tokens that came in [`start`, `end`): the first at its instant, the rest spread evenly up to the last."""
    came = np.isfinite(requests.last)
    first, last, later = requests.first[came], requests.last[came], requests.lengths.output[came] - 1
    begin, stop = np.clip(first, start, end), np.clip(last, start, end)
    spread = np.divide(stop - begin, last - first, out=np.zeros(len(first)), where=last > first)
    return float(((first >= start) & (first < end)).sum() + (spread * later).sum())


def check_objectives(objectives: Sequence[Objective]) -> None:
    """Raises `CannotPlan` for what the simulation does not know: it would count as met."""
    unknown = [objective for objective in objectives if objective.metric not in {*LATENCIES, FAILURES}]
    if unknown:
        raise CannotPlan(
            f"the simulation knows no {unknown[0].metric}, so that {unknown[0]} cannot be planned for: objectives of a "
            f"plan limit {in_words(list(LATENCIES))}, or {FAILURES}."
        )
    if not simulated(objectives):
        raise CannotPlan(
            f"a plan needs an objective that limits {in_words(list(LATENCIES))}, such as ttft_p99=1: failures are "
            "measured and not simulated."
        )


def simulated(objectives: Sequence[Objective]) -> tuple[Objective, ...]:
    """Those that a simulation can judge: its requests never fail."""
    return tuple(objective for objective in objectives if objective.metric != FAILURES)


def within(requests: Requests, objective: Objective) -> Flags:
    """Whether each request met one objective: `enginebench.records.slo.Objective.judge`, on columns."""
    return np.isfinite(requests.last) & not_above(requests.latencies[objective.metric], objective.limit)


def not_above(latencies: npt.NDArray[np.floating], limit: float) -> Flags:
    return np.asarray(~(latencies > limit))


@dataclass(frozen=True, slots=True)
class Band:
    """The median over futures, and the range of nine in ten of them."""

    median: float
    low: float
    high: float

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


def bands(of_futures: Sequence[Mapping[str, float]]) -> dict[str, Band]:
    return {name: band([future[name] for future in of_futures]) for name in of_futures[0]}


def band(values: Sequence[float]) -> Band:
    """Ends are values that occurred: outwards from each quantile the next one."""
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    low, high = math.floor(BAND[0] * (len(ordered) - 1)), math.ceil(BAND[1] * (len(ordered) - 1))
    return Band(float(np.median(ordered)), float(ordered[low]), float(ordered[high]))
