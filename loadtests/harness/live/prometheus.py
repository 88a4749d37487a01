"""A run as it goes on in Prometheus' text format (version 0.0.4), a family at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from enginebench.records.metrics import MOMENTARY, PERCENTILES, QUANTITIES, TOTALS, Metric, Quantity
from enginebench.records.slo import RunObjectives
from enginebench.records.view import StageView, keys_of
from loadtests.harness.live.counts import PHASES, Phase
from loadtests.harness.live.live_run import LiveRun
from loadtests.harness.live.scales import METRICS, Scales
from loadtests.harness.live.stage_counts import StageCounts

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "enginebench_load_"
UNITS = {"s": "_seconds", "tokens/s": "_tokens_per_second"}
MOST_STAGES = 50  # labels; a search may have more stages, which then share one label
OTHER_STAGES = "other"
Labels = Mapping[str, str]
Counted = Mapping[tuple[str, Phase], StageCounts]
"""By the label of a stage and the phase: a request was scheduled in the steady window, as those of a report, or not."""


def exported() -> tuple[Metric, ...]:
    """The metrics that are declared to be exported."""
    return tuple(metric for metric in METRICS if metric.shown.exported)


def name_of(declared: Metric | Quantity) -> str:
    """`ttft_user_seconds`: the declared name and its unit, without the prefix."""
    return f"{declared.name}{'_total' if declared in TOTALS else UNITS.get(declared.unit, '')}"


def families(live: LiveRun, started: float) -> Iterator[str]:
    """`started` is when the run began, in seconds since 1970. The run's id stands on every series."""
    meta = live.meta
    objectives = RunObjectives.of(meta.workload)
    common = {"run": meta.run_id, "scenario": meta.scenario, "engine": meta.label, "model": meta.model or "unknown"}
    info = {**common, "server": meta.url}
    yield _family("run_info", "gauge", "The run that is on, or was on last.", [(info, 1)])
    yield _family("run_start_seconds", "gauge", "When the run began, in seconds since 1970.", [(common, started)])
    limits: dict[str, float] = {}
    for one in objectives.of_all:
        if one.limit:
            limits[one.name] = min(one.limit, limits.get(one.name, one.limit))
    lines = [({**common, "objective": name}, limit) for name, limit in limits.items()]
    yield _family("objective_seconds", "gauge", "The limits of the objectives, of several tiers the tightest.", lines)
    yield from _momentary(common, live)
    views = {view.label: view for view in live.document.stages}  # a longer one in the place of a brief one
    yield from _of_views(common, _labelled(list(views.values())))
    counts = _counts(live)
    yield from _counters(common, counts, bool(objectives))
    for metric in exported():
        yield from _histogram(common, metric, counts, live.scales)


def _labelled(views: Sequence[StageView]) -> list[tuple[str, StageView]]:
    """The first ones by their own labels, and the last of all others."""
    others = views[MOST_STAGES:]
    return [*((view.label, view) for view in views[:MOST_STAGES]), *((OTHER_STAGES, view) for view in others[-1:])]


def _stage_labels(live: LiveRun) -> dict[int, str]:
    """Of the stages that have begun."""
    keys = keys_of(live.meta.plan)
    return {
        stage.index: keys[stage.index].label if stage.index < MOST_STAGES else OTHER_STAGES for stage in live.stages
    }


def _momentary(common: Labels, live: LiveRun) -> Iterator[str]:
    """Of all processes together, at this moment: a value for each of `MOMENTARY`, `None` where it does not apply."""
    labels = _stage_labels(live)
    index = max(labels, default=0)
    values = {
        "stage_index": index,
        "users": None if live.is_open else live.users,
        "in_flight": live.in_flight,
        "recent_offered_rate": live.recent_offered_rate if live.is_open else None,
    }
    here = {**common, "stage": labels.get(index, "")}
    for quantity in MOMENTARY:
        value = values[quantity.name]
        yield _family(name_of(quantity), "gauge", _about(quantity), [] if value is None else [(here, value)])


def _counts(live: LiveRun) -> Counted:
    """A stage counts from 0 on: of a series that begins with more, Prometheus would not see the first requests."""
    labels = _stage_labels(live)
    counts = {(label, phase): StageCounts() for label in labels.values() for phase in PHASES}
    for index, phase in sorted(live.keys):
        counts.setdefault((labels.get(index, OTHER_STAGES), phase), StageCounts()).add(live.counts((index, phase)))
    return counts


def _of_views(common: Labels, views: Sequence[tuple[str, StageView]]) -> Iterator[str]:
    found = [
        ({**common, "stage": label, "kind": finding.kind, "severity": finding.severity}, 1.0)
        for label, view in views
        for finding in view.findings
    ]
    yield _family("finding", "gauge", "What speaks against the numbers of a stage.", found)
    stages = [({**common, "stage": label}, view) for label, view in views]
    loads = [(labels, view.load) for labels, view in stages]
    yield _family("stage_load", "gauge", "The load of a stage: users, or requests per second.", loads)
    for quantity in QUANTITIES:
        if quantity.shown.exported:
            values = [(labels, view.value(quantity.name)) for labels, view in stages]
            known = [(labels, value) for labels, value in values if value is not None]
            about = f"{_about(quantity)} Of the stage's window so far."
            yield _family(f"stage_{name_of(quantity)}", "gauge", about, known)
    for metric in exported():
        percentiles = [
            ({**labels, "quantile": str(q)}, value)
            for labels, view in stages
            for name, q in PERCENTILES.items()
            if (value := view.value(metric.name, name)) is not None
        ]
        about = f"{metric.title}: percentiles of the stage's window so far, infinite where they fall among failures."
        yield _family(f"stage_{name_of(metric)}", "gauge", about, percentiles)


def _counters(common: Labels, counts: Counted, has_objectives: bool) -> Iterator[str]:
    for quantity in TOTALS:
        samples = [
            ({**common, "stage": label, "phase": phase, **labels}, float(value))
            for (label, phase), stage in counts.items()
            for labels, value in _totals(stage, quantity.name, has_objectives)
        ]
        yield _family(name_of(quantity), "counter", _about(quantity), samples)


def _totals(stage: StageCounts, name: str, has_objectives: bool) -> Sequence[tuple[Labels, int]]:
    if name == "requests":
        return [({"outcome": outcome}, count) for outcome, count in stage.outcomes.items()]
    if name == "good_requests":
        return [({}, stage.good)] if has_objectives else []
    return [({}, {"output_tokens": stage.output_tokens, "prompt_tokens": stage.prompt_tokens}[name])]


def _about(quantity: Quantity) -> str:
    return f"{quantity.title}: {quantity.formula}; {quantity.meaning}."


def _family(name: str, kind: str, about: str, samples: Sequence[tuple[Labels, float]]) -> str:
    lines = [_head(name, kind, about)]
    lines += [f"{PREFIX}{name}{{{_written(labels)}}} {value!r}\n" for labels, value in samples]
    return "".join(lines) if samples else ""


def _histogram(common: Labels, metric: Metric, counts: Counted, scales: Scales) -> Iterator[str]:
    """A stage at a time, so that nothing else waits for long."""
    name, key = name_of(metric), metric.name
    beyond = " Failed requests count as infinite." if metric.population == "attempted" else ""
    yield _head(name, "histogram", f"{metric.title}: {metric.meaning}.{beyond}")
    edges, shown = scales.edges[key], scales.exported[key]
    ends = [f'le="{edge!r}"' for edge in shown]
    for (label, phase), stage in counts.items():
        sketch, labels = stage.sketches[key], _written({**common, "stage": label, "phase": phase})
        start = f"{PREFIX}{name}_bucket{{{labels},"
        lines = [f"{start}{end}}} {count}\n" for end, count in zip(ends, sketch.up_to(edges, shown), strict=True)]
        known = sum(sketch.known.values()) + sketch.failed
        lines.append(f'{start}le="+Inf"}} {known}\n')
        lines.append(f"{PREFIX}{name}_sum{{{labels}}} {sketch.total!r}\n")
        lines.append(f"{PREFIX}{name}_count{{{labels}}} {known}\n")
        yield "".join(lines)


def _head(name: str, kind: str, about: str) -> str:
    return f"# HELP {PREFIX}{name} {about}\n# TYPE {PREFIX}{name} {kind}\n"


def _written(labels: Labels) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
