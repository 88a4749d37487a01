"""The score of a run, which is never zero: if nothing meets the SLO, the score is below the least that could count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from enginebench.analysis.data.run_data import NotARun
from enginebench.analysis.engine_runs import engine_runs_of
from enginebench.analysis.summary.loading import summaries_of
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.analysis.verdict.capacity import capacities_of
from enginebench.records.formatting import CURRENCY
from enginebench.records.metrics import GOODPUT
from enginebench.records.request import CUT_OFF
from enginebench.studies.tune.folder import Goal

MIN_SHARE = 0.5  # score if nothing meets the SLO: a share of a request, or of the lowest load
MEASURES: Mapping[Goal, tuple[str, str]] = {
    "goodput": (GOODPUT, "req/s"),
    "capacity": ("capacity", "users"),
    "cost": (f"{GOODPUT} per dollar", f"requests per {CURRENCY.sign}"),
}
"""The compared measure, and its unit."""


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
    if goal == "capacity":
        (capacity,) = capacities_of(engine_runs_of([summary])) or (None,)
        if capacity is None:
            raise NoScore("its load was not measured.")
        return capacity.load or MIN_SHARE * min(stage.load for stage in summary.stages)
    rates = [max(stage.value(GOODPUT) or 0.0, MIN_SHARE / stage.seconds) for stage in summary.stages]
    return max(rates) * (3600 / price if goal == "cost" and price else 1.0)
