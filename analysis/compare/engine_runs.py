"""The repeats of one engine taken together: runs with the same label."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from analysis.stats.estimate import Estimate
from analysis.stats.repeats import repeats_interval, within_run_error
from analysis.summary.run_summary import RunSummary
from analysis.summary.stage import StageSummary

ALIKE = 0.01  # share by which TTFT and TTFT (user) may differ and be called the same


@dataclass(frozen=True, slots=True)
class Contender:
    """One engine's runs, in the order of their repeats."""

    label: str
    runs: tuple[RunSummary, ...]

    def at(self, stage: str) -> tuple[StageSummary, ...]:
        """That stage of each run that has it."""
        return tuple(found for run in self.runs if (found := run.at(stage)) is not None)

    def estimate(self, of: Callable[[StageSummary], Estimate], stage: str, most: float = math.inf) -> Estimate:
        """One run's own number; of several runs the mean, with an interval from their spread. `most` is the largest
        value that there can be."""
        found = [of(one) for one in self.at(stage)]
        if len(found) == 1:
            return found[0]
        values = [one.value for one in found if one.value is not None]
        if len(values) < len(found):
            return next((one for one in found if one.value is None), Estimate(None, why="no runs"))
        if math.inf in values:
            return Estimate(math.inf, n=len(values), why="failed")
        return repeats_interval(values, within_run_error(found)).within(-math.inf, most)

    def mean(self, of: Callable[[StageSummary], float | None], stage: str) -> float | None:
        """Over the runs that have it."""
        values = [value for one in self.at(stage) if (value := of(one)) is not None]
        return sum(values) / len(values) if values else None


def contenders_of(summaries: Sequence[RunSummary]) -> tuple[Contender, ...]:
    """In the order of first appearance."""
    groups: dict[str, list[RunSummary]] = {}
    for summary in summaries:
        groups.setdefault(summary.label, []).append(summary)
    by_repeat = {label: sorted(runs, key=lambda run: run.repeat) for label, runs in groups.items()}
    return tuple(Contender(label, tuple(runs)) for label, runs in by_repeat.items())


def paired(contenders: Sequence[Contender]) -> bool:
    """Whether the i-th runs of all engines are pairs: each repeat asked every engine the same prompts once."""
    repeats = {tuple((run.repeat, run.workload.get("prompt_set")) for run in one.runs) for one in contenders}
    return len(repeats) == 1 and all(len(set(one)) == len(one) for one in repeats)


def headline_ttft(summaries: Sequence[RunSummary]) -> str:
    """The metric that headlines call TTFT: the user's in an open loop, and wherever the two differ."""
    if any(stage.is_open for summary in summaries for stage in summary.stages):
        return "ttft_user"
    pairs = [
        (stage.latencies["ttft"].percentile(p).value, stage.latencies["ttft_user"].percentile(p).value)
        for summary in summaries
        for stage in summary.stages
        for p in ("p50", "p95", "p99")
    ]
    alike = all(a == b or (a is not None and b is not None and abs(b - a) <= ALIKE * a) for a, b in pairs)
    return "ttft" if alike else "ttft_user"


def stages_of(summaries: Sequence[RunSummary]) -> list[StageSummary]:
    """One stage of each label, by load where all have one unit, else as they were planned."""
    found: dict[str, StageSummary] = {}
    for summary in summaries:
        for stage in summary.stages:
            found.setdefault(stage.label, stage)
    if by_load(summaries):
        return sorted(found.values(), key=lambda stage: stage.load)
    return sorted(found.values(), key=lambda stage: stage.index)


def by_load(summaries: Sequence[RunSummary]) -> bool:
    """Whether every stage is known by its load alone, in one unit, so that loads make an axis."""
    stages = [stage for summary in summaries for stage in summary.stages]
    distinct = all(len({s.load for s in summary.stages}) == len(summary.stages) for summary in summaries)
    return distinct and len({stage.load_unit for stage in stages}) == 1 and not any(stage.named for stage in stages)
