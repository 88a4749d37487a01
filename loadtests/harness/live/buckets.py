"""The metrics that are counted during a run, and their buckets, which depend on the run's objectives."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from math import log

from enginebench.records.formula import NOTHING, ByOutcome, Constant, Formula, Reader, reader
from enginebench.records.metrics import REQUEST_METRICS, Metric
from enginebench.records.rules import attempted, censored
from enginebench.records.slo import RunObjectives

PER_DECADE = 16  # exported edges, 16 % from one to the next; more would hold up the event loop at a scrape
MIN_POWER, MAX_POWER = -4, 3  # powers of ten: 100 µs to 1000 s
GROWTH = 1.02  # ratio of neighbouring edges for percentiles: the middle of a bucket is within 1 % of every value in it
SMALLEST, LARGEST = 1e-6, 1e7  # seconds


@dataclass(frozen=True, slots=True)
class Bucketed:
    """A metric with the ascending edges of its buckets, in seconds. Prometheus gets the `exported` edges, a subset of
    `edges`, so that their counts are sums of whole buckets.

    `value` returns the metric of a request that has ended, `None` if the request is not in the metric's population;
    `is_bound` is 1 if a request that was cut off has only a lower bound.
    """

    metric: Metric
    edges: tuple[float, ...]
    exported: tuple[float, ...]
    value: Reader
    is_bound: Reader


class CountedMetrics(dict[str, Bucketed]):
    """The metrics that are shown live or limited by `objectives`, by name."""

    def __init__(self, objectives: RunObjectives) -> None:
        super().__init__()
        self.objectives = objectives
        all_objectives = [*objectives.for_all, *chain.from_iterable(objectives.by_class.values())]
        for metric in REQUEST_METRICS:
            limits = [objective.limit for objective in all_objectives if objective.column == metric.name]
            if limits or metric.shown.live or metric.shown.exported:
                exported = edges_around(limits)
                value, is_bound = map(reader, _in_population(metric))
                steps = int(log(LARGEST / SMALLEST) / log(GROWTH))
                edges = sorted({*(SMALLEST * GROWTH**step for step in range(steps + 1)), *exported})
                self[metric.name] = Bucketed(metric, tuple(edges), exported, value, is_bound)


def _in_population(metric: Metric) -> tuple[Formula, Formula]:
    """Return formulas for a request's value, if it is in the metric's population, and for `is_bound`."""
    if metric.population == "attempted":
        return attempted(metric.formula), censored(metric.formula)
    if metric.population == "answered":
        return ByOutcome(ok=metric.formula, cut_off=NOTHING, failed=NOTHING), Constant(0.0)
    return metric.formula, Constant(0.0)


def edges_around(limits: Iterable[float]) -> tuple[float, ...]:
    """Return the exported edges, ascending. Each limit is an edge, so the count of requests within it is exact."""
    steps = range(MIN_POWER * PER_DECADE, MAX_POWER * PER_DECADE + 1)
    return tuple(sorted({*(float(f"{10 ** (step / PER_DECADE):.4g}") for step in steps), *limits}))
