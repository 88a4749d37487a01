"""Whether an engine gives the baseline's answers: one that gives different answers does different work.

The load test keeps a digest of every answer. Greedy answers to the same prompt, with the same bound on their length,
are the same text or they are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from analysis.compare.prompts import answered_prompts
from analysis.summary.run_summary import RunSummary
from records.formatting import format_share

ASKED = ("prompt_id", "planned_output_tokens")  # what makes two requests the same question


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

    def sentence(self, baseline: str) -> str | None:
        """`None` where all answers are the baseline's, or none were compared."""
        if self.identical == self.prompts:
            return None
        others = self.prompts - self.identical
        said = f"{self.engine} and {baseline} give different answers to {others:,} of {self.prompts:,} prompts"
        if self.steady < self.repeated:
            own = f"{self.repeated - self.steady:,} of the {self.repeated:,} sent to it again"
            said += f"; {self.engine} itself varies on {own}"
        return f"{said}."

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
    both = ours.join(theirs, on=ASKED, suffix="_other", nulls_equal=True)
    one_answer = pl.col("answers").list.len() == 1
    identical = both.filter(one_answer & (pl.col("answers") == pl.col("answers_other")))
    again = ours.filter(pl.col("times") > 1)
    why = None if len(both) else "no prompt in common"
    return SameAnswers(label, len(both), len(identical), len(again), len(again.filter(one_answer)), why)


def _digests(runs: Sequence[RunSummary], label: str) -> pl.DataFrame:
    """For each question its different answers in order, and how many times it was answered in the stage.

    An answer of the warm-up counts like any other: only its time would not.
    """
    parts = [part for run in runs if (part := answered_prompts(run, label)) is not None]
    known = [part.filter(pl.col("answer_digest").is_not_null()).select(_NONE.columns).collect() for part in parts]
    answered = pl.concat(known or [_NONE])
    answers = pl.col("answer_digest").unique().sort()
    return answered.group_by(ASKED).agg(answers=answers, times=pl.len())


_NONE = pl.DataFrame(schema={"prompt_id": pl.String, "planned_output_tokens": pl.Int64, "answer_digest": pl.String})
