"""Checks of how many requests were answered. `findings.py` has their table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from enginebench.analysis.data.answers import ASKED, difference_of, kept_answers
from enginebench.analysis.data.load import RunData
from enginebench.analysis.data.table import scan
from enginebench.records.formatting import counted
from enginebench.records.view import Evidence, StageView


def all_failed(run: RunData, stages: Sequence[StageView]) -> Iterator[Evidence]:
    if not any(view.ok for view in stages) and any(view.failed for view in stages):
        yield Evidence("invalid", "no request succeeded")


def all_censored(run: RunData, stages: Sequence[StageView]) -> Iterator[Evidence]:
    if stages and not any(view.ok or view.failed for view in stages):
        yield Evidence("invalid", "no request ended before the run did")


def unknown_text(run: RunData, stages: Sequence[StageView]) -> Iterator[Evidence]:
    held = run.requests.filter(pl.col("unknown_text").is_not_null())
    names = sorted({name for names in held["unknown_text"].unique() for name in names.split(", ")})
    if names:
        yield Evidence(
            "warn",
            f"{len(held)} of {counted(len(run.requests), 'request')} had text in fields that are not known here "
            f"({', '.join(names)}): it counts as content, not as the answer",
        )


def answers_under_load(run: RunData, stages: Sequence[StageView]) -> Iterator[Evidence]:
    """Greedy answers to the same questions alone and among others, by their digests: equal answers have equal ones."""
    alone = next((view for view in stages if not view.is_open and view.load == 1), None)
    if alone is None or run.meta.workload.get("temperature") or not run.meta.workload.get("dataset"):
        return
    known = pl.col("outcome").eq("ok") & pl.col("answer_digest").is_not_null()
    answered = scan(run.table).filter(known).select(*ASKED, "stage", "answer_digest").unique().collect()
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
        others = len(both.filter(pl.col("loaded") != pl.col("alone")))
        words = (
            f"{others} of {len(both)} prompts got another answer at {view.label} than at {alone.label}"
            if others
            else f"all {len(both)} prompts got the same answer at {view.label} as at {alone.label}"
        )
        difference = difference_of(texts[view.index], texts[alone.index])
        where = difference.words if difference is not None else ""
        yield Evidence("warn" if others else "note", f"{words}{': ' * bool(where)}{where}", view.key)
