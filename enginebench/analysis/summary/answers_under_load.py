"""Do users get the answers under load that one user gets, and are they still right?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from enginebench.analysis.data.answer_differences import ASKED, difference_of, kept_answers
from enginebench.analysis.data.graded import graded_by_load
from enginebench.analysis.data.requests_table import scan
from enginebench.analysis.data.run_data import RunData
from enginebench.records.formatting import format_p, significant
from enginebench.records.metrics import CORRECT
from enginebench.records.view import Evidence, StageView


def answers_under_load(run: RunData, stages: Sequence[StageView]) -> Iterator[Evidence]:
    """Compare greedy answers to the same questions alone and among others, by their digests."""
    alone = next((view for view in stages if not view.is_open and view.load == 1), None)
    if alone is None or run.meta.workload.get("temperature") or not run.meta.workload.get("dataset"):
        return
    has_answer = pl.col("outcome").eq("ok") & pl.col("answer_digest").is_not_null()
    answered = scan(run.table).filter(has_answer).select(*ASKED, "stage", "answer_digest").unique().collect()
    reference = answered.filter(stage=alone.index).group_by(ASKED).agg(alone=pl.col("answer_digest").sort())
    kept = kept_answers(run.folder, run.meta.workload)
    texts = {view.index: [answer for answer in kept if answer.stage == view.index] for view in stages}
    for view in stages:
        if view.is_open or view.load <= 1:
            continue
        loaded = answered.filter(stage=view.index).group_by(ASKED).agg(loaded=pl.col("answer_digest").sort())
        both = loaded.join(reference, on=ASKED, nulls_equal=True)
        if not len(both):
            continue
        changed = len(both.filter(pl.col("loaded") != pl.col("alone")))
        words = (
            f"{changed} of {len(both)} prompts got another answer at {view.label} than at {alone.label}"
            if changed
            else f"all {len(both)} prompts got the same answer at {view.label} as at {alone.label}"
        )
        difference = difference_of(texts[view.index], texts[alone.index])
        if difference is not None and difference.middle is not None:
            words += f": from {difference.unit} {difference.middle:g} on (median), the first from {difference.unit} "
            words += f"{difference.earliest} on"
        if difference is not None and difference.logprob is not None:
            words += "; until then " if difference.middle is not None else ": "
            words += f"log-probabilities differ by {significant(difference.logprob, 2)} at most"
        yield Evidence("warn" if changed else "note", words, stage=view.key)


def graded_under_load(run: RunData, stages: Sequence[StageView]) -> Iterator[Evidence]:
    """Compare the grades of the same questions alone and among others."""
    if run.requests[CORRECT].null_count() == len(run.requests):
        return
    keys = {view.label: view.key for view in stages}
    for load in graded_by_load([(run.table, stages)]):
        words = f"{load.correct} of {load.questions} graded answers were correct"
        if load.p is not None:
            words += (
                f"; of the {load.pairs} questions that one user was asked too, that user had {load.alone} right: "
                f"{load.lost} were lost under load and {load.gained} gained (McNemar's test, p {format_p(load.p)})"
            )
        yield Evidence("warn" if load.worse else "note", words, stage=keys[load.stage])
