"""Which metrics are counted during a run, and into which buckets: decided once for a run, from its objectives."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import log

from enginebench.records.formula import NOTHING, ByOutcome, Constant, Formula, Reader, reader
from enginebench.records.metrics import REQUEST_METRICS, Metric
from enginebench.records.rules import attempted, censored
from enginebench.records.slo import RunObjectives

PER_DECADE = 6  # exported edges, 47 % from one to the next
MIN_POWER, MAX_POWER = -4, 3  # powers of ten: 100 µs to 1000 s
FINE = 1.08  # ratio of neighbours around an objective's limit: at most 10 % after rounding
FINE_STEPS = 9  # to either side, so from half the limit to twice the limit
GROWTH = 1.02  # of the buckets that percentiles are read from: the middle of one is within 1 % of everything in it
SMALLEST, LARGEST = 1e-6, 1e7  # from a microsecond on


@dataclass(frozen=True, slots=True)
class Bucketed:
    """A metric with the ascending edges of its buckets, in seconds. `exported` are the edges that Prometheus gets: some
    of `edges`, so that their counts are sums of whole buckets.

    `value` reads the metric off a request that has ended, `None` if it does not belong to the metric's population;
    `is_bound` is 1 if a request that was cut off only has a lower bound.
    """

    metric: Metric
    edges: tuple[float, ...]
    exported: tuple[float, ...]
    value: Reader
    is_bound: Reader


class CountedMetrics(dict[str, Bucketed]):
    """The metrics that a live surface shows, and those that `objectives` limit, by name."""

    def __init__(self, objectives: RunObjectives) -> None:
        super().__init__()
        self.objectives = objectives.first_tier
        every = (*objectives.for_all, *(one for of_class in objectives.by_class.values() for one in of_class))
        for metric in REQUEST_METRICS:
            limits = [objective.limit for objective in every if objective.column == metric.name]
            if limits or metric.shown.live or metric.shown.exported:
                exported = edges_around(limits)
                value, is_bound = map(reader, _in_population(metric))
                self[metric.name] = Bucketed(metric, with_grid(exported), exported, value, is_bound)


def _in_population(metric: Metric) -> tuple[Formula, Formula]:
    """The value of a request in the metric's population, and whether it is only a lower bound."""
    if metric.population == "attempted":
        return attempted(metric.formula), censored(metric.formula)
    if metric.population == "answered":
        return ByOutcome(ok=metric.formula, cut_off=NOTHING, failed=NOTHING), Constant(0.0)
    return metric.formula, Constant(0.0)


def edges_around(limits: Iterable[float]) -> tuple[float, ...]:
    """The exported edges, ascending. Every limit is an edge itself, so the count of requests within it is exact."""
    limits = sorted(set(limits))
    coarse = [_rounded(10 ** (step / PER_DECADE)) for step in range(MIN_POWER * PER_DECADE, MAX_POWER * PER_DECADE + 1)]
    fine = [_rounded(limit * FINE**step) for limit in limits for step in range(-FINE_STEPS, FINE_STEPS + 1) if step]
    reach = FINE**FINE_STEPS
    far = [edge for edge in coarse if not any(limit / reach <= edge <= limit * reach for limit in limits)]
    return tuple(sorted({*far, *fine, *limits}))


def with_grid(exported: Iterable[float]) -> tuple[float, ...]:
    """All edges, ascending."""
    steps = int(log(LARGEST / SMALLEST) / log(GROWTH))
    return tuple(sorted({*(SMALLEST * GROWTH**step for step in range(steps + 1)), *exported}))


def _rounded(edge: float) -> float:
    return float(f"{edge:.4g}")
