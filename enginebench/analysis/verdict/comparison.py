"""Engine against engine at one load: ratios of a metric with intervals, and whether the difference is significant.

The runs are the samples, because differences between runs are larger than those inside a run. Candidates are ordered by
measured capacity, then by output tokens/s at the common load, or by TTFT if no answer has a second token.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from enginebench.analysis.engine_runs import EngineRuns, stages_of
from enginebench.analysis.stats import samples
from enginebench.analysis.stats.repeats import MIN_REPEATS, holm
from enginebench.analysis.stats.samples import Sample, geometric_mean
from enginebench.analysis.verdict.capacity import Capacity
from enginebench.records.metrics import OUTPUT_RATE, OUTPUT_TOKENS, Column, Quantity, columns
from enginebench.records.rules import MARGIN, SIGNIFICANCE
from enginebench.records.run import instant
from enginebench.records.view import Estimate

BASELINES = ("transformers", "pytorch-baseline")  # the first of these that was run, if no baseline is named


@dataclass(frozen=True, slots=True)
class Comparison:
    """`ratio` is the engine's value divided by that of `over` (for a share, the difference); its 95 % interval needs
    three repeats.

    `p` is two-sided, after Holm's correction over a family of comparisons of the metric. `significant`: p is at most
    5 % and the ratio is beyond the practical margin; `None` if there was no test. `better` says which side the
    ratio is on; `None` if it is 1 or unknown.
    """

    engine: str
    over: str
    stage: str
    column: Column
    ratio: Estimate
    p: float | None
    significant: bool | None
    better: bool | None


def interleaved(engines: Sequence[EngineRuns]) -> bool:
    """Return whether every engine began its i-th run before any began its next one, by the time stamps of the runs."""
    counts = {len(engine.runs) for engine in engines}
    if len(engines) < 2 or len(counts) > 1 or counts == {1}:
        return False
    rounds = zip(*(sorted(instant(run.started_at) for run in engine.runs) for engine in engines), strict=True)
    return all(max(before) < min(after) for before, after in pairwise(rounds))


def paired(ours: EngineRuns, theirs: EngineRuns) -> bool:
    """Return whether the i-th runs of both engines are a pair: interleaved, with the same prompts. Prompts differ
    between repeats."""
    prompts = [[run.workload.get("prompt_set") for run in _in_time(engine).runs] for engine in (ours, theirs)]
    return interleaved((ours, theirs)) and prompts[0] == prompts[1]


def _in_time(engine: EngineRuns) -> EngineRuns:
    return replace(engine, runs=tuple(sorted(engine.runs, key=lambda run: instant(run.started_at))))


def common_stage(engines: Sequence[EngineRuns], capacities: Mapping[str, Capacity]) -> str | None:
    """Return the label of the highest load measured for every engine at which at least one of them meets the SLO;
    without such a load, the label of the highest load measured for every engine."""
    stages = stages_of([run for engine in engines for run in engine.runs])
    common = [stage for stage in reversed(stages) if all(engine.at(stage.label) for engine in engines)]
    highest = max((capacity.load or 0.0 for capacity in capacities.values()), default=0.0)
    sustained = [stage for stage in common if stage.load <= highest]
    return next((stage.label for stage in [*sustained, *common]), None)


def ranking(
    engines: Sequence[EngineRuns], stage: str | None, capacities: Mapping[str, Capacity], speed: Column = OUTPUT_RATE
) -> tuple[EngineRuns, ...]:
    """Sort by measured capacity, then by `speed` at the common stage, best first; equal engines keep their order."""

    def key(engine: EngineRuns) -> tuple[float, float]:
        capacity = capacities.get(engine.label)
        estimates = [] if stage is None else [view.estimate(speed.name, speed.statistic) for view in engine.at(stage)]
        mean = geometric_mean([estimate.value for estimate in estimates])
        fast = mean if speed.better == "higher" or not mean else 1 / mean
        return (0.0 if capacity is None else capacity.load or 0.0), fast

    return tuple(sorted(engines, key=key, reverse=True))


def speed_of(engines: Sequence[EngineRuns], since_due: bool = False) -> Column:
    """Return the column that ranks engines: output tokens/s, or TTFT p50 if no answer has a second token."""
    lengths = [view.value(OUTPUT_TOKENS) for engine in engines for view in engine.stages]
    if not lengths or any(length is None or length > 1 for length in lengths):
        return OUTPUT_RATE
    return next(column for column in columns("compared", since_due) if column.statistic == "p50")


def baseline_of(engines: Sequence[EngineRuns], asked: str | None = None) -> str | None:
    """Return the label `asked` for, or the first of `BASELINES` among the engines; `None` if there is none."""
    labels = [engine.label for engine in engines]
    return next((name for name in (asked, *BASELINES) if name in labels), None)


def compare(
    ranked: Sequence[EngineRuns], stage: str, baseline: str | None = None, since_due: bool = False
) -> tuple[Comparison, ...]:
    """Compare each engine with the next best one, and with the baseline, in every compared metric. The comparisons of
    the best engine, on which the answer rests, and all others are two separate families for Holm's correction."""
    labels = [engine.label for engine in ranked]
    engines = {engine.label: engine for engine in ranked if engine.at(stage)}
    pairs = list(pairwise(labels))
    pairs += [(label, baseline) for label in labels if baseline is not None and label != baseline]
    pairs = [pair for pair in dict.fromkeys(pairs) if set(pair) <= engines.keys()]
    comparisons: list[Comparison] = []
    for column in columns("compared", since_due):
        for best in (True, False):
            family = [pair for pair in pairs if (pair[0] == labels[0]) is best]
            tested = [_compare(engines[ours], engines[theirs], stage, column) for ours, theirs in family]
            complete = [comparison for comparison in tested if comparison is not None]
            corrected = holm([comparison.p for comparison in complete])
            comparisons += [_judged(comparison, p) for comparison, p in zip(complete, corrected, strict=True)]
    return tuple(comparisons)


def _compare(ours: EngineRuns, theirs: EngineRuns, stage: str, column: Column) -> Comparison | None:
    ours, theirs = (replace(e, runs=tuple(run for run in e.runs if run.at(stage))) for e in (ours, theirs))
    top, bottom = (sample_of(_in_time(engine), stage, column) for engine in (ours, theirs))
    if not (top.complete and bottom.complete):
        return None
    ratio, p = samples.compare(column, top, bottom, paired(ours, theirs))
    gain = None if ratio.value is None else ratio.value - (1 if column.relative else 0)
    better = (gain > 0) is (column.better == "higher") if gain and column.better is not None else None
    return Comparison(ours.label, theirs.label, stage, column, ratio, p, None, better)


def sample_of(engine: EngineRuns, stage: str, column: Column) -> Sample:
    """Return the metric of each run; a rate has a step of one request of the window."""
    views = engine.at(stage)
    estimates = tuple(view.estimate(column.name, column.statistic) for view in views)
    values = [abs(estimate.value) for estimate in estimates if estimate.value is not None]
    requests = sum(view.requests for view in views) / len(views) if views else 0.0
    counted = isinstance(column.measure, Quantity) and column.relative and values and requests
    return Sample(estimates, sum(values) / len(values) / requests if counted else 0.0)


def _judged(comparison: Comparison, p: float | None) -> Comparison:
    """Decide significance. A ratio of +∞ or 0 (all runs of one side, no run of the other) needs no test."""
    value, relative = comparison.ratio.value, comparison.column.relative
    if value is not None and comparison.ratio.n >= MIN_REPEATS and relative and (math.isinf(value) or value == 0):
        return replace(comparison, significant=True)
    if p is None or value is None:
        return replace(comparison, p=p)
    beyond = (value >= MARGIN or value <= 1 / MARGIN) if relative else abs(value) >= MARGIN - 1
    return replace(comparison, p=p, significant=p <= SIGNIFICANCE and beyond)
