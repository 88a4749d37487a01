"""The counts in Prometheus' text format (version 0.0.4), a family at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from loadtests.harness.exporter.counts import ICL, METRICS, Buckets, StageCounts
from records.metrics import BY_NAME
from records.slo import Objective

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "enginebench_load_"
Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What does not change in a run. `common` labels stand on every series, those of `info` on one gauge alone."""

    common: Labels
    info: Labels
    started: float  # seconds since 1970
    objectives: tuple[Objective, ...] = ()


@dataclass(frozen=True, slots=True)
class Now:
    """Of all processes together, at one moment. Rates are per second, over the last seconds."""

    users: int
    in_flight: int
    scheduled: int
    stage_index: int
    stage_starts: Mapping[str, float]  # by the stage's label, seconds since 1970
    over: bool
    offered: float
    achieved: float
    goodput: float


def families(facts: RunFacts, now: Now, stages: Mapping[str, StageCounts], buckets: Buckets) -> Iterator[str]:
    """`stages` by their labels."""
    yield from _gauges(facts, now)
    yield from _counters(facts, now, stages)
    for name in (*METRICS, ICL):
        if name == ICL:
            about = "ICL: gaps between successive content chunks. Counts chunks, not requests."
        else:
            metric = BY_NAME[name]
            beyond = " Failed requests count as infinite." if metric.population == "attempted" else ""
            about = f"{metric.title}: {metric.meaning}.{beyond}"
        yield from _histogram(f"{name}_seconds", about, facts.common, stages, name, buckets.edges[name])


def _gauges(facts: RunFacts, now: Now) -> Iterator[str]:
    def gauge(name: str, about: str, value: float) -> str:
        return _family(name, "gauge", about, [(facts.common, value)])

    yield _family("run_info", "gauge", "The run that is on, or was on last.", [({**facts.common, **facts.info}, 1)])
    yield gauge("run_start_time_seconds", "When the run began, in seconds since 1970.", facts.started)
    yield gauge("run_over", "1 once the last stage has ended.", float(now.over))
    yield gauge("stage_index", "Which stage is on, from 0.", now.stage_index)
    starts = [({**facts.common, "stage": label}, at) for label, at in now.stage_starts.items()]
    yield _family("stage_start_time_seconds", "gauge", "When a stage began, in seconds since 1970.", starts)
    limits = [({**facts.common, "objective": one.name}, one.limit) for one in facts.objectives if one.limit]
    yield _family("objective_seconds", "gauge", "The limits of the objectives.", limits)
    yield gauge("users", "Users of all processes; one for each process in an open loop.", now.users)
    yield gauge("requests_in_flight", "Requests that are due and have not ended.", now.in_flight)
    yield gauge("offered_requests_per_second", "Requests scheduled, over the last seconds.", now.offered)
    yield gauge("achieved_requests_per_second", "Requests that ended ok, over the last seconds.", now.achieved)
    yield gauge("goodput_requests_per_second", "Requests that met every objective, over the last seconds.", now.goodput)


def _counters(facts: RunFacts, now: Now, stages: Mapping[str, StageCounts]) -> Iterator[str]:
    yield _family("requests_scheduled_total", "counter", "Requests that were due.", [(facts.common, now.scheduled)])
    requests = [
        ({**facts.common, "stage": label, "outcome": outcome}, count)
        for label, stage in stages.items()
        for outcome, count in stage.outcomes.items()
    ]
    yield _family("requests_total", "counter", "Requests that have ended, by outcome.", requests)
    for name, about in (
        ("good", "Requests that were answered and met every objective."),
        ("output_tokens", "Output tokens of requests that have ended."),
        ("prompt_tokens", "Prompt tokens of requests that have ended."),
    ):
        values = [({**facts.common, "stage": label}, getattr(stage, name)) for label, stage in stages.items()]
        yield _family("good_requests_total" if name == "good" else f"{name}_total", "counter", about, values)


def _family(name: str, kind: str, about: str, samples: Sequence[tuple[Labels, float]]) -> str:
    lines = [_head(name, kind, about)]
    lines += [f"{PREFIX}{name}{{{_written(labels)}}} {_number(value)}\n" for labels, value in samples]
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


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(value)
