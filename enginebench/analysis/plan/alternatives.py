"""Several engines, settings or GPU types side by side: a plan for each, which costs the least, and which of them are
dominated."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from enginebench.analysis.plan.plan import Plan, make_plan
from enginebench.analysis.plan.prices import dollars
from enginebench.analysis.plan.settings import CannotPlan, PlanSettings
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.formatting import counted

NAMED = 3  # engines behind the cheapest one that a sentence names; a table has all


@dataclass(frozen=True, slots=True)
class Alternative:
    """One engine with one set of settings; `refused` says why there is no plan for it."""

    name: str
    plan: Plan | None
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Alternatives:
    """`priced`: costs are dollars an hour, else replicas."""

    all: tuple[Alternative, ...]
    priced: bool

    @property
    def planned(self) -> dict[str, Plan]:
        return {alternative.name: alternative.plan for alternative in self.all if alternative.plan is not None}

    def cost(self, plan: Plan) -> float:
        return plan.bill.per_hour if self.priced and plan.bill is not None else float(plan.count)

    def coordinates(self, plan: Plan) -> tuple[float, float, float]:
        """Cost, TTFT p95 and median TPOT at the peak: less of each is better. Answers of one token have no TPOT, and so
        none that is long."""
        chosen = plan.replicas.chosen
        tpot = chosen.tpot_p50.median
        return self.cost(plan), chosen.ttft_p95.median, 0.0 if math.isnan(tpot) else tpot

    def dominated_by(self, name: str) -> str | None:
        """Another that is no worse in cost, TTFT and TPOT, and better in one; `None` for those on the Pareto front."""
        here = self.coordinates(self.planned[name])
        for other, plan in self.planned.items():
            there = self.coordinates(plan)
            if all(a <= b for a, b in zip(there, here, strict=True)) and there != here:
                return other
        return None

    @property
    def cheapest(self) -> Plan:
        """Of those that cost the same, the one with the lowest latencies."""
        return min(self.planned.values(), key=self.coordinates)

    @property
    def ranked(self) -> tuple[Alternative, ...]:
        """The cheapest first, those without a plan last."""
        planned = [alternative for alternative in self.all if alternative.plan is not None]
        ordered = sorted(planned, key=lambda alternative: self.coordinates(self.planned[alternative.name]))
        return (*ordered, *(alternative for alternative in self.all if alternative.plan is None))

    @property
    def sentence(self) -> str:
        """The answer: of several the cheapest, and what the others need. Empty where none could be planned."""
        if not self.planned:
            return ""
        plan = self.cheapest
        if len(self.all) == 1:
            return plan.sentence
        name = next(name for name, other in self.planned.items() if other is plan)
        others = [(each.name, each.plan) for each in self.ranked if each.plan is not None and each.name != name]
        alike = any(self.cost(its) == self.cost(plan) for _, its in others)
        least = "needs" if alike else "costs the least," if self.priced else "needs the fewest,"
        parts = [f"{plan.goal}: {name} {least} {self._needed(plan)}"]
        parts += [f"{other} needs {self._needed(its)}" for other, its in others[:NAMED]]
        if len(others) > NAMED:
            counts = sorted({its.count for _, its in others[NAMED:]})
            ends = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
            parts.append(f"the other {len(others) - NAMED} need {ends} replicas")
        return "; ".join(parts) + "."

    @property
    def refusals(self) -> str:
        """Why there is no plan, for those of which there is none."""
        refused = [alternative for alternative in self.all if alternative.refused is not None]
        return " ".join((f"{each.name}: " if len(self.all) > 1 else "") + str(each.refused) for each in refused)

    def _needed(self, plan: Plan) -> str:
        """`2 replicas at $1,460 a month`"""
        cost = f" at {dollars(plan.bill.per_month)} a month" if self.priced and plan.bill is not None else ""
        return plan.marked(f"{counted(plan.count, 'replica')}{cost}")


def make_alternatives(groups: Mapping[str, Sequence[RunSummary]], settings: PlanSettings) -> Alternatives:
    alternatives = []
    for name, summaries in groups.items():
        try:
            alternatives.append(Alternative(name, make_plan(name, summaries, settings)))
        except CannotPlan as reason:
            alternatives.append(Alternative(name, None, str(reason)))
    plans = [alternative.plan for alternative in alternatives if alternative.plan is not None]
    return Alternatives(tuple(alternatives), all(plan.bill is not None for plan in plans))
