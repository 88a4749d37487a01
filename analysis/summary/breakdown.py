"""Parts of a stage's requests: each class of a mix, which alone shows what the others do to it, and each turn of
conversations, where a longer history may make the first token come later."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from analysis.data.load import mean_of
from analysis.data.windows import Window
from analysis.summary.distributions import distribution_of, distributions
from analysis.summary.objectives import goodput, judge
from records.metrics import BY_NAME
from records.rules import is_failure
from records.slo import Objective, RunObjectives
from records.view import ClassView, TurnView

FEWEST = 6  # requests of a turn: as many as the interval of a median needs


def classes_of(
    scheduled: pl.DataFrame, objectives: Mapping[str, tuple[Objective, ...]], window: Window
) -> tuple[ClassView, ...]:
    """Nothing where requests have no class. `objectives` are those of each class.

    Raises `UserMistake` when an objective cannot be judged by what was measured.
    """
    classes = []
    for name in scheduled["request_class"].drop_nulls().unique().sort():
        requests = scheduled.filter(pl.col("request_class") == name)
        own = objectives.get(name, ())
        failed = sum(is_failure(outcome) for outcome in requests["outcome"])
        good = goodput(requests, RunObjectives(own), (window.start, window.end))
        classes.append(ClassView(name, len(requests), failed, distributions(requests), good, judge(requests, own)))
    return tuple(classes)


def turns_of(scheduled: pl.DataFrame) -> tuple[TurnView, ...]:
    """The turns with enough requests; nothing where requests belong to no conversation of several."""
    if scheduled["turn"].drop_nulls().n_unique() < 2:
        return ()
    turns = []
    for (turn,), requests in scheduled.drop_nulls("turn").group_by("turn", maintain_order=True):
        if len(requests) >= FEWEST:
            ttft = distribution_of(requests, BY_NAME["ttft_user"]).percentile("p50")
            turns.append(TurnView(int(str(turn)) + 1, len(requests), mean_of(requests["prompt_tokens"]), ttft))
    return tuple(sorted(turns, key=lambda view: view.turn))
