"""Several engines, settings or GPU types side by side: a plan for each, which costs the least, and which of them are
dominated."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.data.load import RunData
from analysis.plan.answer import Plan, dollars, make_plan
from analysis.plan.document import as_document as plan_document
from analysis.plan.errors import CannotPlan
from analysis.plan.settings import PlanSettings
from analysis.summary.run_summary import RunSummary

TOLD = ("model", "dtype", "device", "max_concurrency")  # of an engine, beside its options


@dataclass(frozen=True, slots=True)
class Alternative:
    """One engine with one set of settings; `refused` where there is no plan for it."""

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
        return {one.name: one.plan for one in self.all if one.plan is not None}

    def cost(self, plan: Plan) -> float:
        return plan.bill.per_hour if self.priced and plan.bill is not None else float(plan.count)

    def coordinates(self, plan: Plan) -> tuple[float, float, float]:
        """Cost, TTFT p95 and median TPOT at the peak: less of each is better."""
        chosen = plan.replicas.chosen
        return self.cost(plan), chosen.ttft_p95.median, chosen.tpot_p50.median

    def dominated_by(self, name: str) -> str | None:
        """One that is no worse in cost, TTFT and TPOT, and better in one; `None` for those on the Pareto front."""
        here = self.coordinates(self.planned[name])
        for other, plan in self.planned.items():
            there = self.coordinates(plan)
            if all(a <= b for a, b in zip(there, here, strict=True)) and there != here:
                return other
        return None

    @property
    def cheapest(self) -> tuple[str, Plan]:
        """Of those that cost the same, the one with the lowest latencies."""
        return min(self.planned.items(), key=lambda one: self.coordinates(one[1]))

    @property
    def sentence(self) -> str:
        name, plan = self.cheapest
        cost = f" at {dollars(self.cost(plan))} an hour" if self.priced else ""
        front = [other for other in self.planned if self.dominated_by(other) is None]
        rest = f"; on the Pareto front: {', '.join(front)}" if len(front) > 1 else "; it dominates all others"
        return f"{name} costs the least: {plan.count} replica{'s' * (plan.count != 1)}{cost}{rest}."


def grouped(runs: Sequence[RunData]) -> dict[str, list[RunData]]:
    """Runs by engine and settings. Where one label has several settings, its name says how they differ."""
    groups: dict[tuple[str, str], list[RunData]] = {}
    for run in runs:
        groups.setdefault((run.meta.label, json.dumps(_settings(run), sort_keys=True, default=str)), []).append(run)
    named = {}
    for (label, _), members in groups.items():
        same = [_settings(others[0]) for (other, _), others in groups.items() if other == label]
        own = _settings(members[0])
        differing = [key for key in own if any(one.get(key) != own[key] for one in same)]
        told = ", ".join(f"{key}={own[key]}" for key in differing)
        named[f"{label} ({told})" if told else label] = members
    return named


def _settings(run: RunData) -> dict[str, Any]:
    engine = run.meta.engine or {}
    return {name: engine.get(name) for name in TOLD} | dict(engine.get("options") or {})


def make_alternatives(
    groups: Mapping[str, Sequence[RunData]], summaries: Mapping[str, RunSummary], settings: PlanSettings
) -> Alternatives:
    """`summaries` by run id. Raises `CannotPlan` where there is a plan for none."""
    found = []
    for name, runs in groups.items():
        try:
            found.append(Alternative(name, make_plan(name, runs, [summaries[r.meta.run_id] for r in runs], settings)))
        except CannotPlan as reason:
            found.append(Alternative(name, None, str(reason)))
    plans = [one.plan for one in found if one.plan is not None]
    if not plans:
        raise CannotPlan(" ".join(f"{one.name}: {one.refused}" for one in found))
    return Alternatives(tuple(found), all(plan.bill is not None for plan in plans))


def as_document(found: Alternatives) -> dict[str, Any]:
    """What `--json` prints for several: each plan as for one, and what dominates it."""
    return {
        "schema": 1,
        "answer": found.sentence,
        "cost_in": "US dollars per hour" if found.priced else "replicas",
        "alternatives": [
            {
                "name": one.name,
                "refused": one.refused,
                "plan": None if one.plan is None else plan_document(one.plan),
                "cost": None if one.plan is None else found.cost(one.plan),
                "dominated_by": None if one.plan is None else found.dominated_by(one.name),
            }
            for one in found.all
        ],
    }
