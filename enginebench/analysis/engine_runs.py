"""The repeats of one engine taken together: runs with the same label."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from enginebench.analysis.stats.pooled_percentile import pooled_answered, pooled_percentile
from enginebench.analysis.stats.repeats import repeats_interval, within_run_error
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.formatting import in_words
from enginebench.records.metrics import PERCENTILES, REQUEST_METRICS, Column, supported
from enginebench.records.view import EMPTY, NO_SAMPLES, Estimate, Missing, StageView
from enginebench.settings.schema import UserMistake

ENGINE_FACTS = ("model", "dtype", "device", "max_concurrency")  # these and the options distinguish engines
SIZED = {"kv_tokens"}  # options that an engine may derive from the memory that happens to be free
SIZED_TOLERANCE = 0.1  # share by which such options may differ and still count as equal
TOLERANCE = 0.01  # share by which a latency may differ from the latency since the request was due


@dataclass(frozen=True, slots=True)
class EngineRuns:
    """The runs of an engine, in the order of their repeats."""

    label: str
    runs: tuple[RunSummary, ...]
    _cache: dict[tuple[str, str, str], Estimate] = field(default_factory=dict, init=False, repr=False, compare=False)

    def at(self, stage: str) -> tuple[StageView, ...]:
        """Return the stage of each run that has it."""
        return tuple(view for run in self.runs if (view := run.at(stage)) is not None)

    @property
    def stages(self) -> tuple[StageView, ...]:
        return tuple(stage for run in self.runs for stage in run.stages)

    def estimate(self, stage: str, name: str, statistic: str = "value") -> Estimate:
        """Return the number of a single run. For several runs, a percentile is over all their requests together; any
        other number is the mean of the runs, with an interval from their spread."""
        key = (stage, name, statistic)
        if key not in self._cache:  # several surfaces ask for the same estimate
            views = self.at(stage)
            self._cache[key] = (
                pooled_percentile([view.metrics.get(name, EMPTY) for view in views], statistic)
                if statistic in PERCENTILES and any(view.metrics.get(name, EMPTY).ended is not None for view in views)
                else over_runs([view.estimate(name, statistic) for view in views])
            )
        return self._cache[key]

    def answered(self, stage: str, column: Column) -> float | None:
        """Return the percentile of only the answered requests, if others failed."""
        runs = [view.metrics.get(column.name, EMPTY) for view in self.at(stage)]
        return pooled_answered(runs, column.statistic) if column.statistic in PERCENTILES else None

    def column(self, stage: str, column: Column) -> Estimate:
        estimate = self.estimate(stage, column.name, column.statistic)
        return estimate.clipped(0.0, 1.0) if column.unit == "share" else estimate

    def shown(self, stage: str, column: Column) -> Estimate:
        """Return the estimate, without the value of a percentile that n·(1 − p) < 1 requests exceed, unless the SLO
        limits it."""
        estimate = self.column(stage, column)
        limited = any(o.judged == column.measure and o.statistic == column.statistic for o in self.runs[0].objectives)
        if limited or column.statistic not in PERCENTILES or supported(column.statistic, estimate.n):
            return estimate
        return Estimate(None, n=estimate.n, missing=Missing.FEW_REQUESTS)

    def start(self, name: str) -> Estimate:
        """Return a quantity of the server's start, over the runs that started their server."""
        estimates = [stage.estimate(name) for stage in self.stages]
        return over_runs([estimate for estimate in estimates if estimate.value is not None])

    def value(self, stage: str, name: str, statistic: str = "value") -> float | None:
        return self.estimate(stage, name, statistic).value


def over_runs(estimates: Sequence[Estimate]) -> Estimate:
    """Return the estimate of a single run, else the mean with an interval from the spread of the runs. There is no mean
    if a run lacks the value; the mean is +∞ if the value of any run is."""
    if len(estimates) == 1:
        return estimates[0]
    values = [estimate.value for estimate in estimates if estimate.value is not None]
    if len(values) < len(estimates) or not values:
        return next((estimate for estimate in estimates if estimate.value is None), NO_SAMPLES)
    if math.inf in values:
        return Estimate(math.inf, n=len(values), missing=Missing.FAILED)
    # A few runs may agree by chance more closely than the error within each run allows.
    return repeats_interval(values, within_run_error(estimates))


def engine_runs_of(summaries: Sequence[RunSummary]) -> tuple[EngineRuns, ...]:
    """Group runs by their labels, in the order of first appearance.

    Raises `UserMistake` if the runs were judged by different objectives, because they are pooled and ranked.
    """
    groups: dict[str, list[RunSummary]] = {}
    for summary in summaries:
        groups.setdefault(summary.label, []).append(summary)
    slos = list(dict.fromkeys(", ".join(map(str, run.objectives)) or "none" for run in summaries))
    if len(slos) > 1:
        names = in_words(list(groups))
        raise UserMistake(
            f"the runs of {names} were made with different objectives ({'; '.join(slos)}): give one --slo for all."
        )
    return tuple(EngineRuns(label, _numbered(runs)) for label, runs in groups.items())


def _numbered(runs: Sequence[RunSummary]) -> tuple[RunSummary, ...]:
    """Order the runs by repeat; renumber them if several have the same number, as after a repeated command."""
    ordered = sorted(runs, key=lambda run: run.repeat)
    if len({run.repeat for run in ordered}) == len(ordered):
        return tuple(ordered)
    return tuple(replace(run, repeat=number) for number, run in enumerate(ordered))


def by_settings(summaries: Sequence[RunSummary]) -> dict[str, list[RunSummary]]:
    """Group runs by engine and settings. If a label has several settings, the names say how they differ."""
    groups: list[list[RunSummary]] = []
    for run in summaries:
        same_label = (group for group in groups if group[0].label == run.label)
        equal = next((group for group in same_label if not differing_settings([group[0], run])), None)
        if equal is None:
            groups.append([run])
        else:
            equal.append(run)
    named = {}
    for group in groups:
        first = group[0]
        own = engine_settings(first)
        differing = differing_settings([runs[0] for runs in groups if runs[0].label == first.label])
        settings = ", ".join(f"{key}={own[key]}" for key in own if key in differing)
        named[f"{first.label} ({settings})" if settings else first.label] = group
    return named


def differing_settings(runs: Sequence[RunSummary]) -> set[str]:
    """Return the names of the settings in which the engines of the runs differ."""
    settings = [engine_settings(run) for run in runs]
    names = {name for own in settings for name in own}
    return {name for name in names if not all(_equal(name, settings[0].get(name), own.get(name)) for own in settings)}


def _equal(name: str, ours: Any, theirs: Any) -> bool:
    if name in SIZED and isinstance(ours, int) and isinstance(theirs, int):
        return abs(ours - theirs) <= SIZED_TOLERANCE * max(ours, theirs)
    return bool(ours == theirs)


def engine_settings(run: RunSummary) -> dict[str, Any]:
    engine = run.engine or {}
    return {name: engine.get(name) for name in ENGINE_FACTS} | dict(engine.get("options") or {})


def since_due(summaries: Sequence[RunSummary]) -> bool:
    """Return whether latencies count from when requests were due: in an open loop, or if that makes a difference.
    Otherwise delays of the load generator would be left out (coordinated omission)."""
    due = {metric.since_due for metric in REQUEST_METRICS if metric.since_due}
    stages = [stage for summary in summaries for stage in summary.stages]
    stages = [
        stage for stage in stages if not stage.metrics or due & stage.metrics.keys()
    ]  # some imported runs lack it
    if any(stage.is_open for stage in stages):
        return True
    twins = [(metric.name, metric.since_due) for metric in REQUEST_METRICS if metric.since_due and metric.shown.table]
    pairs = [
        (stage.value(sent, p), stage.value(due, p)) for stage in stages for sent, due in twins for p in PERCENTILES
    ]
    return not all(a == b or (a is not None and b is not None and abs(b - a) <= TOLERANCE * a) for a, b in pairs)


def stages_of(summaries: Sequence[RunSummary]) -> list[StageView]:
    """Return one stage of each label, in order of load if all share one unit, else in the planned order."""
    stages: dict[str, StageView] = {}
    for summary in summaries:
        for stage in summary.stages:
            stages.setdefault(stage.label, stage)
    if loads_make_axis(summaries):
        return sorted(stages.values(), key=lambda stage: stage.load)
    return sorted(stages.values(), key=lambda stage: stage.index)


def loads_make_axis(summaries: Sequence[RunSummary]) -> bool:
    """Return whether every stage is named by its load alone, in one unit."""
    stages = [stage for summary in summaries for stage in summary.stages]
    distinct = all(len({s.load for s in summary.stages}) == len(summary.stages) for summary in summaries)
    return distinct and len({stage.load_unit for stage in stages}) == 1 and not any(stage.named for stage in stages)
