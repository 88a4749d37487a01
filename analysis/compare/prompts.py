"""Requests of two engines paired by prompt: where both answered the same prompts, differences between prompts fall
out of the ratio. One value for each pair of runs; the runs remain the samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from records.view import Estimate
from analysis.stats.repeats import ratio_interval
from analysis.summary.run_summary import RunSummary
from records.stage import SECOND

LEAST_PROMPTS = 10  # in common, below which two runs are not paired by prompt


@dataclass(frozen=True, slots=True)
class PromptPairs:
    """`ratio` is how many times shorter the engine's latency is, prompt by prompt: the geometric mean over the prompts
    that both answered, and over the repeats. `prompts` is the least number of them in a pair of runs."""

    ratio: Estimate
    prompts: int


def pair_by_prompt(
    engine: Sequence[RunSummary], baseline: Sequence[RunSummary], stage: str, metrics: Sequence[str]
) -> dict[str, PromptPairs]:
    """By metric. The i-th runs belong to one repeat. Empty where the runs have too few prompts in common."""
    pairs = [_pair(one, other, stage, metrics) for one, other in zip(engine, baseline, strict=True)]
    if not pairs or any(pair is None for pair in pairs):
        return {}
    found = [pair for pair in pairs if pair is not None]
    return {
        metric: PromptPairs(
            ratio_interval([pair[metric][0] for pair in found], [1.0] * len(found), paired=True),
            min(pair[metric][1] for pair in found),
        )
        for metric in metrics
        if all(metric in pair for pair in found)
    }


def _pair(
    one: RunSummary, other: RunSummary, stage: str, metrics: Sequence[str]
) -> dict[str, tuple[float, int]] | None:
    """Of each metric the ratio of `other` over `one`, and over how many prompts."""
    ours, theirs = (_by_prompt(run, stage, metrics) for run in (one, other))
    if ours is None or theirs is None:
        return None
    both = ours.join(theirs, on="prompt_id", suffix="_other")
    found = {}
    for metric in metrics:
        apart = (both[f"{metric}_other"].log() - both[metric].log()).drop_nulls()
        mean = apart.mean()
        if len(apart) >= LEAST_PROMPTS and isinstance(mean, float):
            found[metric] = (math.exp(mean), len(apart))
    return found or None


def _by_prompt(run: RunSummary, label: str, metrics: Sequence[str]) -> pl.DataFrame | None:
    """Each prompt's mean latency over the answered requests of the stage's window."""
    answered = answered_prompts(run, label)
    stage = run.at(label)
    if answered is None or stage is None:
        return None
    inside = pl.col("t_sched").is_between(round(stage.start * SECOND), round(stage.end * SECOND), closed="left")
    means = [pl.col(metric).filter(pl.col(metric) > 0).mean() for metric in metrics]
    return answered.filter(inside).group_by("prompt_id").agg(means).collect()


def answered_prompts(run: RunSummary, label: str) -> pl.LazyFrame | None:
    """The answered requests of a stage, warm-up included, whose prompt is known; `None` without stage or table."""
    stage, table = run.at(label), Path(run.folder) / "requests.parquet"
    if stage is None or not table.exists():
        return None
    return pl.scan_parquet(table).filter(pl.col("prompt_id").is_not_null(), stage=stage.index, outcome="ok")
