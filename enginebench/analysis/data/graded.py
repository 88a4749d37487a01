"""Graded answers: are the questions that a single user got right answered worse under load?

The same questions are compared, so the test is McNemar's (1947): of the questions whose grade changed, half would get
worse by chance. Its exact form is a sign test, valid for any number of questions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import comb
from pathlib import Path

import polars as pl

from enginebench.analysis.data.requests_table import has_columns, scan
from enginebench.analysis.stats.repeats import holm
from enginebench.records.view import StageView

SIGNIFICANT = 0.05
ASKED = "prompt_id"


@dataclass(frozen=True, slots=True)
class Graded:
    """The grades of a load: `correct` of its `questions`.

    Of the `pairs` that a single user was asked too, that user had `alone` right; `lost` were right only for that user,
    `gained` only at this load. `p` is two-sided and Holm-corrected over the loads; `None` without pairs.
    """

    stage: str
    questions: int
    correct: int
    pairs: int = 0
    alone: int = 0
    lost: int = 0
    gained: int = 0
    p: float | None = None

    @property
    def worse(self) -> bool:
        return self.lost > self.gained and self.p is not None and self.p <= SIGNIFICANT


def graded_by_load(runs: Iterable[tuple[Path, Sequence[StageView]]]) -> tuple[Graded, ...]:
    """Compare the loads of an engine's runs, each a table of requests and its stages; empty without graded answers.

    Repeats ask the same questions, so they do not count as further questions: a question is right if it was right in
    more than half of the runs, in each by its first answer.
    """
    runs = [(table, stages) for table, stages in runs if has_columns(table)]
    parts = [_grades(table, stage) for table, stages in runs for stage in stages]
    if not parts:
        return ()
    grades = pl.concat(parts).group_by("stage", ASKED).agg((pl.col("correct").mean() > 0.5).alias("correct"))
    stages = {view.label: view for _, views in runs for view in views}
    single = next((label for label, view in stages.items() if not view.is_open and view.load == 1), None)
    alone = grades.filter(stage=single or "").select(ASKED, alone="correct")
    graded = []
    for label in stages:
        here = grades.filter(stage=label)
        if here.is_empty():
            continue
        pairs = here.join(alone, on=ASKED) if label != single else here.clear().with_columns(alone="correct")
        lost, gained = (pairs.filter(pl.col("alone") == was, pl.col("correct") != was).height for was in (True, False))
        right = int(pairs["alone"].sum())
        p = mcnemar(lost, gained) if len(pairs) else None
        graded.append(Graded(label, len(here), int(here["correct"].sum()), len(pairs), right, lost, gained, p))
    corrected = holm([load.p for load in graded])
    return tuple(replace(load, p=p) for load, p in zip(graded, corrected, strict=True))


def _grades(table: Path, stage: StageView) -> pl.DataFrame:
    """Return the first grade of each question in the stage, warm-up included."""
    graded = scan(table).filter(pl.col("correct").is_not_null(), stage=stage.index).sort("t_sched")
    first = graded.unique(ASKED, keep="first").select(ASKED, "correct", stage=pl.lit(stage.label))
    return first.collect()


def mcnemar(lost: int, gained: int) -> float:
    """Return the exact two-sided p: twice the smaller tail of a binomial distribution with probability 1/2."""
    changed = lost + gained
    tail = sum(comb(changed, count) for count in range(min(lost, gained) + 1))
    return min(1.0, tail / 2.0 ** (changed - 1))
