"""The counts in Prometheus' text format (version 0.0.4), a family at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from loadtests.harness.live.counts import Phase
from loadtests.harness.live.scales import METRICS, Scales
from loadtests.harness.live.stage_counts import StageCounts
from records.metrics import QUANTITIES, Metric
from records.slo import RunObjectives
from records.view import StageView

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "enginebench_load_"
UNITS = {"s": "_seconds", "tokens/s": "_tokens_per_second", "req/s": "_per_second"}
Labels = Mapping[str, str]


class Place(NamedTuple):
    """Where a request was counted. `window`: it was scheduled in the steady window, as the requests of a report."""

    stage: str
    phase: Phase


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What does not change in a run. `common` labels stand on every series, `run` on those that describe it."""

    run: str
    server: str
    common: Labels
    started: float  # seconds since 1970
    objectives: RunObjectives


@dataclass(frozen=True, slots=True)
class Now:
    """Of all processes together, at one moment. A closed loop has `users`; an open one has `offered`, the requests
    scheduled per second over the last seconds. The other one is `None`."""

    stage: str
    stage_index: int
    users: int | None
    in_flight: int
    offered: float | None


def exported() -> tuple[Metric, ...]:
    """The metrics that are declared to be exported."""
    return tuple(metric for metric in METRICS if metric.shown.exported)


def name_of(metric: Metric) -> str:
    """`ttft_seconds` for what an objective calls `ttft`."""
    return f"{metric.objective or metric.name}{UNITS.get(metric.unit, '')}"


def families(
    facts: RunFacts, now: Now, counts: Mapping[Place, StageCounts], scales: Scales, views: Sequence[StageView]
) -> Iterator[str]:
    yield from _gauges(facts, now)
    yield from _of_views(facts, views)
    yield from _counters(facts, counts)
    for metric in exported():
        yield from _histogram(facts.common, metric, counts, scales)


def _gauges(facts: RunFacts, now: Now) -> Iterator[str]:
    run = {"run": facts.run, **facts.common}
    yield _family("run_info", "gauge", "The run that is on, or was on last.", [({**run, "server": facts.server}, 1)])
    yield _family("run_start_seconds", "gauge", "When the run began, in seconds since 1970.", [(run, facts.started)])
    limits = [({**facts.common, "objective": one.name}, one.limit) for one in facts.objectives.of_all if one.limit]
    yield _family("objective_seconds", "gauge", "The limits of the objectives.", limits)
    here = {**facts.common, "stage": now.stage}
    for name, about, value in (
        ("stage_index", "Which stage is on, from 0.", now.stage_index),
        ("users", "Users of all processes; closed loops only.", now.users),
        ("in_flight", "Requests that are due and have not ended.", now.in_flight),
        ("offered_rate", "Requests scheduled per second, over the last seconds; open loops only.", now.offered),
    ):
        yield _family(name, "gauge", about, [] if value is None else [(here, value)])


def _of_views(facts: RunFacts, views: Sequence[StageView]) -> Iterator[str]:
    found = [
        ({**facts.common, "stage": view.label, "kind": finding.kind, "severity": finding.severity}, 1.0)
        for view in views
        for finding in view.findings
    ]
    yield _family("finding", "gauge", "What speaks against the numbers of a stage.", found)
    for quantity in QUANTITIES:
        if quantity.shown.exported:
            values = [({**facts.common, "stage": view.label}, view.value(quantity.name)) for view in views]
            known = [(labels, value) for labels, value in values if value is not None]
            about = f"{quantity.title}: {quantity.formula}, of the stage's window so far."
            yield _family(f"{quantity.name}{UNITS.get(quantity.unit, '')}", "gauge", about, known)


def _counters(facts: RunFacts, counts: Mapping[Place, StageCounts]) -> Iterator[str]:
    requests = [
        ({**facts.common, **place._asdict(), "outcome": outcome}, count)
        for place, stage in counts.items()
        for outcome, count in stage.outcomes.items()
    ]
    yield _family("requests_total", "counter", "Requests that have ended, by outcome.", requests)
    good = {place: stage.good for place, stage in counts.items() if facts.objectives}
    output = {place: stage.output_tokens for place, stage in counts.items()}
    prompt = {place: stage.prompt_tokens for place, stage in counts.items()}
    for name, about, values in (
        ("good_requests", "Requests that were answered and met every objective.", good),
        ("output_tokens", "Output tokens of requests that have ended.", output),
        ("prompt_tokens", "Prompt tokens of requests that have ended.", prompt),
    ):
        samples = [({**facts.common, **place._asdict()}, value) for place, value in values.items()]
        yield _family(f"{name}_total", "counter", about, samples)


def _family(name: str, kind: str, about: str, samples: Sequence[tuple[Labels, float]]) -> str:
    lines = [_head(name, kind, about)]
    lines += [f"{PREFIX}{name}{{{_written(labels)}}} {value!r}\n" for labels, value in samples]
    return "".join(lines) if samples else ""


def _histogram(common: Labels, metric: Metric, counts: Mapping[Place, StageCounts], scales: Scales) -> Iterator[str]:
    """A stage at a time, so that nothing else waits for long."""
    name, key = name_of(metric), metric.name
    beyond = " Failed requests count as infinite." if metric.population == "attempted" else ""
    yield _head(name, "histogram", f"{metric.title}: {metric.meaning}.{beyond}")
    edges, shown = scales.edges[key], scales.exported[key]
    ends = [f'le="{edge!r}"' for edge in shown]
    for place, stage in counts.items():
        sketch, labels = stage.sketches[key], _written({**common, **place._asdict()})
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
