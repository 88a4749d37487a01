"""How the metrics of a request are read and into which buckets they go: made once for a run, from its objectives."""

from __future__ import annotations

from loadtests.harness.live.edges import GAP_GROWTH, GROWTH, edges_around, with_grid
from records.formula import NOTHING, Formula
from records.metrics import ICL, REQUEST_METRICS, Metric
from records.readers import readers
from records.rules import attempted, censored
from records.slo import RunObjectives
from records.stage import SECOND

METRICS: tuple[Metric, ...] = (*REQUEST_METRICS, ICL)


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
