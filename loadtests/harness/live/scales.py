"""How the metrics of a request are read and into which buckets they go, those that the exporter shows among them: made
once for a run, from its objectives."""

from __future__ import annotations

from collections.abc import Iterable
from math import log

from enginebench.records.formula import NOTHING, Formula
from enginebench.records.metrics import ICL, REQUEST_METRICS, Metric
from enginebench.records.readers import readers
from enginebench.records.rules import attempted, censored
from enginebench.records.slo import RunObjectives
from enginebench.records.stage import SECOND

METRICS: tuple[Metric, ...] = (*REQUEST_METRICS, ICL)
PER_DECADE = 6  # exported edges, so neighbours are 47 % apart
LEAST, MOST = -4, 3  # powers of ten: 100 µs to 1000 s
FINE = 1.08  # ratio of neighbours around an objective's limit: at most 10 % apart after rounding
FINE_STEPS = 9  # to either side, so from half the limit to twice the limit
GROWTH = 1.02  # of the buckets that percentiles are read from: the middle of one is within 1 % of everything in it
GAP_GROWTH = 1.08  # likewise of the gaps between chunks, which are a hundred times as many: within 4 %
SMALLEST, LARGEST = 1e-6, 1e7  # from a microsecond on


class Scales:
    """The buckets of each metric: those of the objectives that limit it among them."""

    def __init__(self, objectives: RunObjectives) -> None:
        self.objectives = objectives.first_tier
        given = (*objectives.of_all, *(one for each in objectives.of_class.values() for one in each))
        limits = {metric.name: [one.limit for one in given if one.column == metric.name] for metric in METRICS}
        self.exported = {name: edges_around(own) for name, own in limits.items()}
        growths = {ICL.name: GAP_GROWTH}  # of which an answer has a hundred
        self.edges = {name: with_grid(exported, growths.get(name, GROWTH)) for name, exported in self.exported.items()}
        self.of_requests = [(metric.name, self.edges[metric.name]) for metric in REQUEST_METRICS]
        self.values = readers(metric.formula for metric in REQUEST_METRICS)
        # Of a request that did not end well: its value in the metric's population, and whether it is a lower bound.
        self.others = readers(_of_others(metric) for metric in REQUEST_METRICS)
        self.bounds = readers(censored(metric.formula) for metric in REQUEST_METRICS)
        self.nanoseconds = [round(edge * SECOND) for edge in self.edges[ICL.name]]


def _of_others(metric: Metric) -> Formula:
    if metric.population == "answered":
        return NOTHING
    return attempted(metric.formula) if metric.population == "attempted" else metric.formula


def edges_around(limits: Iterable[float]) -> tuple[float, ...]:
    """The exported edges, ascending. Every limit is an edge itself, so the count of requests within it is exact."""
    given = sorted(set(limits))
    coarse = [_rounded(10 ** (step / PER_DECADE)) for step in range(LEAST * PER_DECADE, MOST * PER_DECADE + 1)]
    fine = [_rounded(limit * FINE**step) for limit in given for step in range(-FINE_STEPS, FINE_STEPS + 1) if step]
    reach = FINE**FINE_STEPS
    far = [edge for edge in coarse if not any(limit / reach <= edge <= limit * reach for limit in given)]
    return tuple(sorted({*far, *fine, *given}))


def with_grid(exported: Iterable[float], growth: float) -> tuple[float, ...]:
    """All edges, ascending: the exported ones among them, so that their counts are sums of whole buckets."""
    steps = int(log(LARGEST / SMALLEST) / log(growth))
    return tuple(sorted({*(SMALLEST * growth**step for step in range(steps + 1)), *exported}))


def _rounded(edge: float) -> float:
    return float(f"{edge:.4g}")
