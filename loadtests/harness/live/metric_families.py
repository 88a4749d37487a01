"""The live state of a run as families of Prometheus metrics.

Counters and histograms cover the whole run; the gauges `stage_…` cover the window of each stage so far.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import Metric as MetricFamily

from enginebench.records.metrics import (
    GOOD_REQUESTS,
    IN_FLIGHT,
    MOMENTARY,
    OUTPUT_TOKENS,
    PERCENTILES,
    QUANTITIES,
    RECENT_OFFERED_RATE,
    REQUEST_METRICS,
    REQUESTS,
    STAGE_INDEX,
    TOTALS,
    USERS,
    Metric,
    Quantity,
)
from enginebench.records.slo import RunObjectives
from enginebench.records.view import SEVERITIES, keys_of
from loadtests.harness.live.counts import Counts
from loadtests.harness.live.live_run import LiveRun

PREFIX = "enginebench_load_"
UNITS = {"s": "_seconds", "tokens/s": "_tokens_per_second"}
EXPORTED = tuple(metric for metric in REQUEST_METRICS if metric.shown.exported)
Labels = Mapping[str, str]
Samples = Iterable[tuple[Labels, float | None]]


class Family(MetricFamily):
    """A family that is its own collector, so that it can be written alone."""

    def collect(self) -> Iterable[MetricFamily]:
        yield self


def name_of(declared: Metric | Quantity) -> str:
    """Return the declared name with its unit, such as `ttft_user_seconds`, without the prefix."""
    return f"{declared.name}{'_total' if declared in TOTALS else UNITS.get(declared.unit, '')}"


def families(live: LiveRun, started: float) -> Iterator[Family]:
    """Yield one family at a time. `started` is when the run began, in seconds since 1970."""
    meta = live.meta()
    objectives = RunObjectives.from_workload(meta.workload)
    common = {"run": meta.run_id, "scenario": meta.scenario, "engine": meta.label, "model": meta.model or "unknown"}
    yield _family("run_info", "gauge", "The current run, or the last one.", [({**common, "server": meta.url}, 1.0)])
    yield _family("run_start_seconds", "gauge", "When the run began, in seconds since 1970.", [(common, started)])
    limits: dict[str, float] = {}
    for objective in objectives.for_all:
        if objective.limit:
            limits[objective.name] = min(objective.limit, limits.get(objective.name, objective.limit))
    lines = [({**common, "objective": name}, limit) for name, limit in limits.items()]
    yield _family("objective_seconds", "gauge", "The limit of each objective, or the tightest of several.", lines)
    yield from _momentary(common, live)
    yield from _of_stages(common, live, started)
    counts = live.counts()
    values: dict[str, list[tuple[Labels, float | None]]] = {
        REQUESTS: [({**common, "outcome": outcome}, count) for outcome, count in counts.outcomes.items()],
        GOOD_REQUESTS: [(common, counts.good)] if objectives else [],
        OUTPUT_TOKENS: [(common, counts.output_tokens)],
    }
    for quantity in TOTALS:
        yield _family(name_of(quantity), "counter", _about(quantity), values[quantity.name])
    for metric in EXPORTED:
        yield _histogram(common, metric, counts, live)


def _momentary(common: Labels, live: LiveRun) -> Iterator[Family]:
    """Yield the current values of all processes together, without those that do not apply."""
    meta = live.meta()
    stage = meta.stages[-1] if meta.stages else None
    labels = {**common, "stage": keys_of(meta.plan)[stage.index].label if stage is not None else ""}
    values = {
        STAGE_INDEX: stage.index if stage is not None else 0,
        USERS: None if live.is_open else live.users(),
        IN_FLIGHT: live.in_flight,
        RECENT_OFFERED_RATE: live.recent_offered_rate if live.is_open else None,
    }
    for quantity in MOMENTARY:
        yield _family(name_of(quantity), "gauge", _about(quantity), [(labels, values[quantity.name])])


def _of_stages(common: Labels, live: LiveRun, started: float) -> Iterator[Family]:
    by_label = {view.label: view for view in live.document.stages}  # a long stage replaces a brief one of its label
    views = [({**common, "stage": label}, view) for label, view in by_label.items()]
    findings: list[tuple[Labels, float]] = []
    for labels, view in views:
        # 0 is exported too: after the run, the last value must not be that of a withdrawn warning.
        ranks = {"load_generator_late": 0}
        ranks |= {finding.kind: len(SEVERITIES) - SEVERITIES.index(finding.severity) for finding in view.findings}
        findings += [({**labels, "kind": kind}, rank) for kind, rank in ranks.items()]
    yield _family("finding", "gauge", "A warning about a stage: 1 is a note, 2 warns, 3 makes it invalid.", findings)
    loads = [(labels, view.load) for labels, view in views]
    yield _family("stage_load", "gauge", "The load of a stage: users, or requests per second.", loads)
    for end, about in ("start", "begins"), ("end", "ends, or now"):
        times = [(labels, started + getattr(view, end)) for labels, view in views]
        yield _family(
            f"stage_{end}_seconds", "gauge", f"When the stage's window {about}, in seconds since 1970.", times
        )
    for quantity in QUANTITIES:
        if quantity.shown.exported:
            about = f"{_about(quantity)} Of the stage's window so far."
            values = [(labels, view.value(quantity.name)) for labels, view in views]
            yield _family(f"stage_{name_of(quantity)}", "gauge", about, values)
    for metric in EXPORTED:
        about = f"{metric.title}: percentiles of the stage's window so far, infinite if they fall among failures."
        percentiles = [
            ({**labels, "quantile": str(q)}, view.value(metric.name, name))
            for labels, view in views
            for name, q in PERCENTILES.items()
        ]
        yield _family(f"stage_{name_of(metric)}", "gauge", about, percentiles)


def _about(quantity: Quantity) -> str:
    return f"{quantity.title}: {quantity.formula}; {quantity.meaning}."


def _family(name: str, kind: str, about: str, samples: Samples) -> Family:
    """Leave out samples without a value."""
    family = Family(PREFIX + name.removesuffix("_total"), about, kind)
    for labels, value in samples:
        if value is not None:
            family.add_sample(PREFIX + name, dict(labels), value)
    return family


def _histogram(common: Labels, metric: Metric, counts: Counts, live: LiveRun) -> Family:
    histogram, bucketed = counts.histogram(metric.name), live.metrics[metric.name]
    n = histogram.finite + histogram.failed
    within = [*histogram.up_to(bucketed.edges, bucketed.exported), n]
    beyond = " Failed requests count as infinite." if metric.population == "attempted" else ""
    family = Family(PREFIX + name_of(metric), f"{metric.title}: {metric.meaning}.{beyond}", "histogram")
    for edge, count in zip([*map(repr, bucketed.exported), "+Inf"], within, strict=True):
        family.add_sample(f"{family.name}_bucket", {**common, "le": edge}, count)
    family.add_sample(f"{family.name}_sum", dict(common), histogram.total)
    family.add_sample(f"{family.name}_count", dict(common), n)
    return family
