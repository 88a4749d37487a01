"""Graded answers: are the questions that a single user got right answered worse under load?

The same questions are compared, so the test is McNemar's (1947): of the questions whose grade changed, half would get
worse by chance. Its exact form is a sign test, valid for any number of questions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from enginebench.analysis.data.requests_table import has_columns, scan
from enginebench.analysis.stats.repeats import holm, mcnemar
from enginebench.records.metrics import CORRECT
from enginebench.records.rules import SIGNIFICANCE
from enginebench.records.view import StageView

ASKED, ALONE = "prompt_id", "alone"


@dataclass(frozen=True, slots=True)
class Graded:
    """The grades of a load: `correct` of its `questions`. Of the `pairs` that a single user asked too, `alone` were
    answered correctly for that user; `lost` only for that user, `gained` only at this load. `p` is two-sided and
    Holm-corrected over the loads; `None` without pairs."""

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
        return self.lost > self.gained and self.p is not None and self.p <= SIGNIFICANCE


def graded_by_load(runs: Iterable[tuple[Path, Sequence[StageView]]]) -> tuple[Graded, ...]:
    """Compare the loads of an engine's runs, each a table of requests and its stages; empty without graded answers.
    Repeats ask the same questions, so they add none: a question counts as right if its first answer was right in more
    than half of the runs.
    """
    runs = [(table, stages) for table, stages in runs if has_columns(table)]
    parts = [_grades(table, stage) for table, stages in runs for stage in stages]
    if not parts:
        return ()
    stages = {view.label: view for _, views in runs for view in views}
    single = next((label for label, view in stages.items() if not view.is_open and view.load == 1), "")
    right, before = pl.col(CORRECT), pl.col(ALONE)
    grades = pl.concat(parts).group_by("stage", ASKED).agg(right.mean() > 0.5)
    alone = grades.filter(stage=single).select(ASKED, right.alias(ALONE))
    pairs = grades.join(alone, on=ASKED, how="left").with_columns(pl.when(pl.col("stage") != single).then(before))
    counts = pairs.group_by("stage").agg(
        right.sum(),
        before.sum(),
        questions=pl.len(),
        pairs=before.count(),
        lost=(before & ~right).sum(),
        gained=(right & ~before).sum(),
    )
    graded = sorted((Graded(**row) for row in counts.to_dicts()), key=lambda load: list(stages).index(load.stage))
    corrected = holm([mcnemar(load.lost, load.gained) if load.pairs else None for load in graded])
    return tuple(replace(load, p=p) for load, p in zip(graded, corrected, strict=True))


def _grades(table: Path, stage: StageView) -> pl.DataFrame:
    """Return the first grade of each question in the stage, warm-up included."""
    graded = scan(table).filter(pl.col(CORRECT).is_not_null(), stage=stage.index).sort("t_sched")
    first = graded.unique(ASKED, keep="first").select(ASKED, CORRECT, stage=pl.lit(stage.label))
    return first.collect()
