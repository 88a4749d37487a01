"""The score of a run, which is never zero: if nothing meets the SLO, the score is below the least that could count."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from enginebench.analysis.data.run_data import NotARun
from enginebench.analysis.summary.loading import summaries_of
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.request import CUT_OFF
from enginebench.studies.tune.goals import GOALS, Goal


class NoScore(Exception):
    """A run has no score and must not win. The message is a sentence."""


def summary_of(folder: Path) -> RunSummary:
    """Summarise a run. Raises `NoScore` without a steady window, or if the SLO cannot judge the run."""
    try:
        (summary,) = summaries_of([str(folder)], Path())
    except (NotARun, ValueError) as error:
        raise NoScore(str(error)) from None
    return summary


def score_of(summary: RunSummary, goal: Goal, price: float | None) -> float:
    """Score a run; `price` is US dollars per hour. Raises `NoScore` if no request was answered, or the server hung."""
    outcomes = Counter[str]()
    for stage in summary.stages:
        outcomes.update(stage.outcomes)
    answered, hung = outcomes.pop("ok", 0), outcomes[CUT_OFF]
    if not answered and not outcomes.total():
        raise NoScore("no request ended in its window: it hung, or its warm-up was not over.")
    if not answered:
        endings = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items() if count)
        raise NoScore(f"no request was answered ({endings}).")
    if hung > answered:
        raise NoScore(f"it hung: {hung} requests had no answer at the end, {answered} were answered.")
    score = GOALS[goal].score(summary, price)
    if score is None:
        raise NoScore("its load was not measured.")
    return score
