"""The answer of `enginebench plan` for each engine of a report."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.compare.engine_runs import Contender, contenders_of
from analysis.plan.plan import make_plan
from analysis.plan.settings import CannotPlan, PlanSettings
from analysis.report.decision import Advice
from analysis.summary.run_summary import RunSummary


def plans_of(summaries: Sequence[RunSummary], settings: PlanSettings) -> dict[str, Advice]:
    """By label. Raises `UserMistake` for a price that cannot be read."""
    return {one.label: _plan(one, settings) for one in contenders_of(summaries)}


def _plan(one: Contender, settings: PlanSettings) -> Advice:
    try:
        made = make_plan(one.label, one.runs, settings)
    except CannotPlan as refused:
        return Advice("replicas", one.label, None, str(refused).rstrip("."))
    return Advice("replicas", one.label, made.sentence)
