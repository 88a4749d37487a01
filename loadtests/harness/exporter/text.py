"""The counts in Prometheus' text format (version 0.0.4), a family at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from loadtests.harness.exporter.counts import ICL, METRICS, Buckets, StageCounts
from records.slo import RunObjectives

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "enginebench_load_"
Labels = Mapping[str, str]


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


def families(facts: RunFacts, now: Now, stages: Mapping[str, StageCounts], buckets: Buckets) -> Iterator[str]:
    """`stages` by their labels."""
    yield from _gauges(facts, now)
    yield from _counters(facts, stages)
    for name in (*METRICS, ICL):
        if name == ICL:
            about = "ICL: gaps between successive content chunks. Counts chunks, not requests."
        else:
            metric = METRICS[name]
            beyond = " Failed requests count as infinite." if metric.population == "attempted" else ""
            about = f"{metric.title}: {metric.meaning}.{beyond}"
        yield from _histogram(f"{name}_seconds", about, facts.common, stages, name, buckets.edges[name])


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


def _counters(facts: RunFacts, stages: Mapping[str, StageCounts]) -> Iterator[str]:
    requests = [
        ({**facts.common, "stage": label, "outcome": outcome}, count)
        for label, stage in stages.items()
        for outcome, count in stage.outcomes.items()
    ]
    yield _family("requests_total", "counter", "Requests that have ended, by outcome.", requests)
    good = {label: stage.good for label, stage in stages.items() if facts.objectives}
    output = {label: stage.output_tokens for label, stage in stages.items()}
    prompt = {label: stage.prompt_tokens for label, stage in stages.items()}
    for name, about, values in (
        ("good_requests", "Requests that were answered and met every objective.", good),
        ("output_tokens", "Output tokens of requests that have ended.", output),
        ("prompt_tokens", "Prompt tokens of requests that have ended.", prompt),
    ):
        samples = [({**facts.common, "stage": label}, value) for label, value in values.items()]
        yield _family(f"{name}_total", "counter", about, samples)


def _family(name: str, kind: str, about: str, samples: Sequence[tuple[Labels, float]]) -> str:
    lines = [_head(name, kind, about)]
    lines += [f"{PREFIX}{name}{{{_written(labels)}}} {value!r}\n" for labels, value in samples]
    return "".join(lines) if samples else ""


def _histogram(
    name: str, about: str, common: Labels, stages: Mapping[str, StageCounts], key: str, edges: Sequence[float]
) -> Iterator[str]:
    """A stage at a time, so that nothing else waits for long."""
    yield _head(name, "histogram", about)
    ends = [*(f'le="{edge!r}"' for edge in edges), 'le="+Inf"']
    for label, stage in stages.items():
        histogram, labels, so_far = stage.histograms[key], _written({**common, "stage": label}), 0
        start, lines = f"{PREFIX}{name}_bucket{{{labels},", []
        for end, count in zip(ends, histogram.counts, strict=True):
            so_far += count
            lines.append(f"{start}{end}}} {so_far}\n")
        lines.append(f"{PREFIX}{name}_sum{{{labels}}} {histogram.total!r}\n")
        lines.append(f"{PREFIX}{name}_count{{{labels}}} {so_far}\n")
        yield "".join(lines)


def _head(name: str, kind: str, about: str) -> str:
    return f"# HELP {PREFIX}{name} {about}\n# TYPE {PREFIX}{name} {kind}\n"


def _written(labels: Labels) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
