"""Two engines on the same prompts: their latencies paired by prompt, and whether they give the same answers.

Where both answered the same prompts, differences between prompts fall out of the ratio: one value for each pair of
runs, which remain the samples. An engine that gives different answers does different work. The load test keeps a digest
of every answer: greedy answers to the same prompt, with the same bound on their length, are the same text or not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from enginebench.analysis.data.answers import ASKED, AnswerDifference, difference_of, kept_answers
from enginebench.analysis.data.table import has_columns, scan
from enginebench.analysis.stats.repeats import ratio_interval
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.formatting import format_share
from enginebench.records.request import RequestRecord
from enginebench.records.stage import SECOND
from enginebench.records.view import Estimate

LEAST_PROMPTS = 10  # in common, below which two runs are not paired by prompt


@dataclass(frozen=True, slots=True)
class PromptPairs:
    """`ratio` is how many times shorter the engine's latency is, prompt by prompt: the geometric mean over the prompts
    that both answered, and over the repeats. `prompts` is the least number of them in a pair of runs."""

    ratio: Estimate
    prompts: int

    @property
    def reversed(self) -> PromptPairs:
        return PromptPairs(self.ratio.inverse, self.prompts)


def pair_by_prompt(
    engine: Sequence[RunSummary], baseline: Sequence[RunSummary], stage: str, metrics: Sequence[str]
) -> dict[str, PromptPairs]:
    """By metric. The i-th runs belong to one repeat. Empty where the runs have too few prompts in common."""
    pairs = []
    for ours, theirs in zip(engine, baseline, strict=True):
        pair = _pair(ours, theirs, stage, metrics)
        if pair is None:
            return {}
        pairs.append(pair)
    return {
        metric: PromptPairs(
            ratio_interval([pair[metric][0] for pair in pairs], [1.0] * len(pairs), paired=True),
            min(pair[metric][1] for pair in pairs),
        )
        for metric in metrics
        if all(metric in pair for pair in pairs)
    }


def _pair(
    engine: RunSummary, baseline: RunSummary, stage: str, metrics: Sequence[str]
) -> dict[str, tuple[float, int]] | None:
    """Of each metric the ratio of the baseline's over the engine's, and over how many prompts."""
    ours, theirs = (_by_prompt(run, stage, metrics) for run in (engine, baseline))
    if ours is None or theirs is None:
        return None
    both = ours.join(theirs, on="prompt_id", suffix="_other")
    ratios = {}
    for metric in metrics:
        apart = (both[f"{metric}_other"].log() - both[metric].log()).drop_nulls()
        mean = apart.mean()
        if len(apart) >= LEAST_PROMPTS and isinstance(mean, float):
            ratios[metric] = (math.exp(mean), len(apart))
    return ratios or None


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
    if stage is None or not has_columns(table):
        return None
    return scan(table).filter(pl.col("prompt_id").is_not_null(), stage=stage.index, outcome="ok")


@dataclass(frozen=True, slots=True)
class SameAnswers:
    """Of the `prompts` that both engines answered at the stage, how many had `identical` answers throughout.

    `steady` counts the engine's own prompts with one answer only, of the `repeated` ones that it was asked more than
    once: a greedy engine has no other reason for a second answer than what else it was computing. `why`: nothing was
    compared.
    """

    engine: str
    prompts: int
    identical: int
    repeated: int
    steady: int
    why: str | None = None
    difference: AnswerDifference | None = None  # where texts were kept

    def sentence(self, baseline: str) -> str | None:
        """`None` where all answers are the baseline's, or none were compared."""
        if self.identical == self.prompts:
            return None
        others = self.prompts - self.identical
        sentence = f"{self.engine} and {baseline} give different answers to {others:,} of {self.prompts:,} prompts"
        if self.steady < self.repeated:
            own = f"{self.repeated - self.steady:,} of the {self.repeated:,} sent to it again"
            sentence += f"; {self.engine} itself varies on {own}"
        if self.difference is not None and self.difference.words:
            sentence += f"; they differ {self.difference.words}"
        return f"{sentence}."

    @property
    def text(self) -> str:
        """`12 of 40 (30 %)`, or why there is none."""
        if self.why is not None:
            return self.why
        return f"{self.identical:,} of {self.prompts:,} ({format_share(self.identical / self.prompts)})"


def same_answers(engine: Sequence[RunSummary], baseline: Sequence[RunSummary], stage: str) -> SameAnswers:
    """Over all runs of both, regardless of repeat."""
    label = engine[0].label
    if any(run.workload.get("temperature", 0) for run in (*engine, *baseline)):
        return SameAnswers(label, 0, 0, 0, 0, "not greedy: --temperature 0")
    ours, theirs = (_digests(runs, stage) for runs in (engine, baseline))
    if ours is None or theirs is None:
        return SameAnswers(label, 0, 0, 0, 0, "no prompt in common")
    both = ours.join(theirs, on=ASKED, suffix="_other", nulls_equal=True)
    one_answer = pl.col("answers").list.len() == 1
    identical = both.filter(one_answer & (pl.col("answers") == pl.col("answers_other")))
    again = ours.filter(pl.col("times") > 1)
    why = None if len(both) else "no prompt in common"
    difference = difference_of(_texts(engine, stage), _texts(baseline, stage))
    return SameAnswers(label, len(both), len(identical), len(again), len(again.filter(one_answer)), why, difference)


def _texts(runs: Sequence[RunSummary], label: str) -> list[RequestRecord]:
    """The answers of a stage that were kept with their texts."""
    places = [(run, stage.index) for run in runs if (stage := run.at(label)) is not None]
    return [
        answer
        for run, index in places
        for answer in kept_answers(Path(run.folder), run.workload)
        if answer.stage == index
    ]


def _digests(runs: Sequence[RunSummary], label: str) -> pl.DataFrame | None:
    """For each question its different answers in order, and how many times it was answered in the stage; `None` where
    no run has a table of its requests.

    An answer of the warm-up counts like any other: only its time would not.
    """
    parts = [part for run in runs if (part := answered_prompts(run, label)) is not None]
    columns = [pl.col(*ASKED, "answer_digest")]
    known = [part.filter(pl.col("answer_digest").is_not_null()).select(columns).collect() for part in parts]
    if not known:
        return None
    answers = pl.col("answer_digest").unique().sort()
    return pl.concat(known).group_by(ASKED).agg(answers=answers, times=pl.len())
