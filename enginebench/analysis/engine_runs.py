"""The repeats of one engine taken together: runs with the same label."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from enginebench.analysis.stats.pooled_percentile import pooled_answered, pooled_percentile
from enginebench.analysis.stats.repeats import repeats_interval, within_run_error
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.metrics import PERCENTILES, REQUEST_METRICS, Column
from enginebench.records.view import EMPTY, NO_SAMPLES, Estimate, Missing, StageView
from enginebench.settings.schema import UserMistake

GPUS = "gpus"  # the gauge that is a number of devices
ENGINE_FACTS = ("model", "dtype", "device", "max_concurrency")  # that tell engines apart, beside their options
SIZED = {"kv_tokens"}  # options that an engine may choose itself, by the memory that happens to be free
SIZED_ALIKE = 0.1  # share by which they may differ, and be called the same
ALIKE = 0.01  # share by which a latency may differ from the same since the request was due, and be called the same


@dataclass(frozen=True, slots=True)
class EngineRuns:
    """One engine's runs, in the order of their repeats."""

    label: str
    runs: tuple[RunSummary, ...]
    _known: dict[tuple[str, str, str], Estimate] = field(default_factory=dict, init=False, repr=False, compare=False)

    def at(self, stage: str) -> tuple[StageView, ...]:
        """That stage of each run that has it."""
        return tuple(view for run in self.runs if (view := run.at(stage)) is not None)

    @property
    def stages(self) -> tuple[StageView, ...]:
        """Of all runs."""
        return tuple(stage for run in self.runs for stage in run.stages)

    def estimate(self, stage: str, name: str, statistic: str = "value") -> Estimate:
        """One run's own number. Of several a percentile is that of all their requests together; any other number is the
        mean of the runs, with an interval from their spread."""
        key = (stage, name, statistic)
        if key not in self._known:  # several surfaces ask for each
            views = self.at(stage)
            self._known[key] = (
                pooled_percentile([view.metrics.get(name, EMPTY) for view in views], statistic)
                if statistic in PERCENTILES
                else over_runs([view.estimate(name, statistic) for view in views])
            )
        return self._known[key]

    def answered(self, stage: str, column: Column) -> float | None:
        """The percentile of the requests that ended well, if others did not."""
        runs = [view.metrics.get(column.name, EMPTY) for view in self.at(stage)]
        return pooled_answered(runs, column.statistic) if column.statistic in PERCENTILES else None

    def column(self, stage: str, column: Column) -> Estimate:
        estimate = self.estimate(stage, column.name, column.statistic)
        return estimate.within(0.0, 1.0) if column.unit == "share" else estimate

    def value(self, stage: str, name: str, statistic: str = "value") -> float | None:
        return self.estimate(stage, name, statistic).value

    def mean(self, of: Callable[[StageView], float | None], stage: str) -> float | None:
        """Over the runs that have it."""
        values = [value for view in self.at(stage) if (value := of(view)) is not None]
        return sum(values) / len(values) if values else None

    def gauge(self, stage: str, name: str) -> float | None:
        """The mean of one of the server's gauges, over the runs that have it."""
        return self.mean(lambda view: view.gauges[name].mean if name in view.gauges else None, stage)


def over_runs(estimates: Sequence[Estimate]) -> Estimate:
    """One run's own estimate; of several the mean, with an interval from their spread. A value that one run lacks has
    no mean; one that is +∞ in any run is +∞."""
    if len(estimates) == 1:
        return estimates[0]
    values = [estimate.value for estimate in estimates if estimate.value is not None]
    if len(values) < len(estimates) or not values:
        return next((estimate for estimate in estimates if estimate.value is None), NO_SAMPLES)
    if math.inf in values:
        return Estimate(math.inf, n=len(values), missing=Missing.FAILED)
    # A few runs may be alike by chance, more than the requests in them are.
    return repeats_interval(values, within_run_error(estimates))


def engine_runs_of(summaries: Sequence[RunSummary]) -> tuple[EngineRuns, ...]:
    """In the order of first appearance.

    Raises `UserMistake` where runs of one label were judged by different objectives: they would be pooled as one.
    """
    groups: dict[str, list[RunSummary]] = {}
    for summary in summaries:
        groups.setdefault(summary.label, []).append(summary)
    for label, runs in groups.items():
        slos = list(dict.fromkeys(", ".join(map(str, run.objectives)) or "none" for run in runs))
        if len(slos) > 1:
            raise UserMistake(
                f"the runs of {label} were made with different objectives ({'; '.join(slos)}): give one --slo for all."
            )
    by_repeat = {label: sorted(runs, key=lambda run: run.repeat) for label, runs in groups.items()}
    return tuple(EngineRuns(label, tuple(runs)) for label, runs in by_repeat.items())


def by_settings(summaries: Sequence[RunSummary]) -> dict[str, list[RunSummary]]:
    """Runs by engine and settings. Where one label has several settings, its name says how they differ."""
    groups: list[list[RunSummary]] = []
    for run in summaries:
        of_label = (group for group in groups if group[0].label == run.label)
        alike = next((group for group in of_label if not settings_apart(group[0], run)), None)
        if alike is None:
            groups.append([run])
        else:
            alike.append(run)
    named = {}
    for group in groups:
        first = group[0]
        others = [other[0] for other in groups if other[0].label == first.label]
        own, differing = engine_settings(first), {key for other in others for key in settings_apart(first, other)}
        settings = ", ".join(f"{key}={own[key]}" for key in own if key in differing)
        named[f"{first.label} ({settings})" if settings else first.label] = group
    return named


def settings_apart(first: RunSummary, other: RunSummary) -> list[str]:
    """Names of the settings that their engines did not have alike."""
    ours, theirs = engine_settings(first), engine_settings(other)
    return [name for name in dict.fromkeys((*ours, *theirs)) if not _alike(name, ours.get(name), theirs.get(name))]


def _alike(name: str, ours: Any, theirs: Any) -> bool:
    if name in SIZED and isinstance(ours, int) and isinstance(theirs, int):
        return abs(ours - theirs) <= SIZED_ALIKE * max(ours, theirs)
    return bool(ours == theirs)


def engine_settings(run: RunSummary) -> dict[str, Any]:
    engine = run.engine or {}
    return {name: engine.get(name) for name in ENGINE_FACTS} | dict(engine.get("options") or {})


def since_due(summaries: Sequence[RunSummary]) -> bool:
    """Whether latencies are shown from the instant at which requests were due: in an open loop, and wherever the two
    differ, so that no delay of the load generator is left out (coordinated omission)."""
    stages = [stage for summary in summaries for stage in summary.stages]
    if any(stage.is_open for stage in stages):
        return True
    twins = [(metric.name, metric.since_due) for metric in REQUEST_METRICS if metric.since_due and metric.shown.table]
    pairs = [
        (stage.value(sent, p), stage.value(due, p)) for stage in stages for sent, due in twins for p in PERCENTILES
    ]
    return not all(a == b or (a is not None and b is not None and abs(b - a) <= ALIKE * a) for a, b in pairs)


def stages_of(summaries: Sequence[RunSummary]) -> list[StageView]:
    """One stage of each label, by load where all have one unit, else as they were planned."""
    stages: dict[str, StageView] = {}
    for summary in summaries:
        for stage in summary.stages:
            stages.setdefault(stage.label, stage)
    if by_load(summaries):
        return sorted(stages.values(), key=lambda stage: stage.load)
    return sorted(stages.values(), key=lambda stage: stage.index)


def common_stages(summaries: Sequence[RunSummary]) -> list[str]:
    """The labels of the stages that every run has, lightest first."""
    return [stage.label for stage in stages_of(summaries) if all(run.at(stage.label) for run in summaries)]


def by_load(summaries: Sequence[RunSummary]) -> bool:
    """Whether every stage is known by its load alone, in one unit, so that loads make an axis."""
    stages = [stage for summary in summaries for stage in summary.stages]
    distinct = all(len({s.load for s in summary.stages}) == len(summary.stages) for summary in summaries)
    return distinct and len({stage.load_unit for stage in stages}) == 1 and not any(stage.named for stage in stages)
