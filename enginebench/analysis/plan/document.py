"""What a plan says, for every output: the first screen, what it rests on, what speaks against it, and all of it as one
JSON document."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from enginebench.analysis.compare.capacity import slo_capacity
from enginebench.analysis.console import TextTable
from enginebench.analysis.engine_runs import EngineRuns
from enginebench.analysis.first_screen import Candidate, FirstScreen, PlannedReplicas, first_screen
from enginebench.analysis.plan.accuracy import INACCURATE
from enginebench.analysis.plan.alternatives import Alternative, Alternatives
from enginebench.analysis.plan.fleet import SURE, Attainment
from enginebench.analysis.plan.plan import NOT_RELIABLE, Plan
from enginebench.analysis.plan.prices import dollars
from enginebench.analysis.plan.replicas import SimulatedCapacity
from enginebench.analysis.plan.requests import FIGURES, simulated
from enginebench.analysis.summary.as_document import as_document
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.formatting import MISSING, counted, format_seconds, format_share, in_words, significant
from enginebench.records.load import Load

SCHEMA_VERSION = 2
ERRORS_MEAN = "Errors: prediction ÷ measurement − 1. Each load is predicted from a fit to the others."


def screen_of(alternatives: Alternatives, groups: Mapping[str, Sequence[RunSummary]], peak: Load) -> FirstScreen:
    """`groups`: the runs of each alternative, by its name."""
    candidates = [
        Candidate(
            alternative.name,
            EngineRuns(alternative.name, tuple(groups[alternative.name])),
            slo_capacity(groups[alternative.name]),
            planned_of(alternative, peak),
        )
        for alternative in alternatives.ranked
    ]
    return first_screen(alternatives.sentence, candidates)


def planned_of(alternative: Alternative, peak: Load) -> PlannedReplicas:
    """What is said of a plan where others are said of others."""
    plan = alternative.plan
    if plan is None:
        refused = f"Not planned: {alternative.refused}"
        return PlannedReplicas(alternative.name, peak.label, None, None, None, None, refused)
    fewer = plan.replicas.fewer
    return PlannedReplicas(
        engine=alternative.name,
        peak=peak.label,
        count=plan.count,
        low=plan.replicas.low,
        high=plan.replicas.high,
        month=None if plan.bill is None else plan.bill.per_month,
        sentence=plan.sentence,
        reliable=plan.reliable,
        warnings=tuple(warnings_of(plan)),
        trade_off="" if fewer is None else _trade_off(plan, fewer),
        how_sure=_how_sure(plan),
        spares=plan.spares,
    )


def _how_sure(plan: Plan) -> str:
    """What futures say counts only as far as the model is right."""
    chosen, off = plan.replicas.chosen, [] if plan.largest_error is None else [plan.largest_error.sentence]
    if plan.reliable:
        met = f"every objective is met in {round(chosen.met * chosen.futures)} of {chosen.futures} simulated futures"
        return "; ".join([met, *off])
    opposed = [] if plan.contradiction is None else [plan.contradiction.sentence]
    return f"{NOT_RELIABLE}: {'; '.join([*off, *opposed])}"


def simulated_text(capacity: SimulatedCapacity) -> str:
    """`16 users within the objectives, missed at 17`"""
    missed = "no larger load is supported" if capacity.missed is None else f"missed at {capacity.missed:.3g}"
    return f"{capacity.met:.3g} {capacity.unit} within the objectives, {missed}"


def _trade_off(plan: Plan, fewer: Attainment) -> str:
    saved = ""
    if plan.bill is not None:
        less = plan.bill.per_month * (plan.replicas.count - fewer.replicas) / plan.count
        saved = f"{dollars(less)} a month less, but "
    met = f"the objectives are met in {format_share(fewer.met)} of the futures"
    within = f"in the median future {format_share(fewer.share.median)} of the requests are within them"
    return f"with {counted(fewer.replicas, 'replica')}: {saved}{met} ({within})"


def warnings_of(plan: Plan) -> list[str]:
    """What speaks against the plan, gravest first, for every output; without full stops."""
    model, limits = plan.basis.fitted.model, [o for o in plan.objectives if o not in simulated(plan.objectives)]
    warnings = []
    if plan.contradiction is not None:
        warnings.append(f"{plan.contradiction.sentence}: do not rely on the number of replicas")
    error = plan.largest_error
    if error is not None and error.error > INACCURATE:
        warnings.append(
            f"the prediction of {error.figure} at {error.load} was off by {error.size}: do not rely on the number of "
            "replicas, and where a measured load disagrees, trust that"
        )
    if plan.replicas.margin.warning is not None:
        warnings.append(plan.replicas.margin.warning)
    if model.slots is None and model.synchronised:
        warnings.append(
            "no run had requests waiting for a slot, so how many run at a time is not known: no replica is planned "
            f"with more than was measured ({plan.largest}); measure a load beyond saturation"
        )
    if limits:
        warnings.append(
            f"{in_words([objective.text for objective in limits])} is not simulated but measured: no replica is "
            f"planned with more than {plan.largest}, the largest measured load at which it was met"
        )
    if plan.other_tiers:
        others = in_words(plan.other_tiers)
        warnings.append(
            f"planned for the tier {plan.objectives[0].tier}, the first given: to plan for {others}, give those "
            "objectives alone"
        )
    return [*warnings, *plan.basis.fitted.warnings]


def facts_of(plan: Plan) -> list[tuple[str, str]]:
    """(what, how much): what the plan rests on."""
    model, fit = plan.basis.fitted.model, plan.basis.fitted.fit
    cost = model.cost
    parts = [format_seconds(cost.base)]
    for seconds, of in (
        (cost.per_running, "running request"),
        (cost.per_token, "prompt token prefilled"),
        (cost.per_prompt, "prompt prefilled"),
    ):
        if seconds > 0:
            parts.append(f"{format_seconds(seconds)} per {of}")
    if cost.batched > 0:
        parts.append(f"{format_seconds(cost.batched)} if several run or a prompt is prefilled")
    if cost.per_running_beyond > 0:
        parts.append(f"{format_seconds(cost.per_running_beyond)} per running request beyond {cost.knee:.0f}")
    step = " + ".join(parts) + ("" if model.synchronised else ", each request by itself")
    ran = f"{model.most_running} ran at most"
    sources = {"saturation": "seen at saturation", "engine": "reported by the engine"}
    slots = f"not known ({ran})" if model.slots is None else f"{model.slots}, {sources[model.slots_from]} ({ran})"
    measured = "not measured in the unit of the peak" if plan.capacity is None else plan.capacity.sentence.rstrip(".")
    facts = [
        (
            "engine",
            f"{plan.label}; {len(plan.basis.stages)} stages of {len(plan.runs)} run{'s' * (len(plan.runs) > 1)}",
        ),
        ("measured", measured),
        ("simulated", simulated_text(plan.replicas.capacity)),
        ("a step takes", f"{step}; {fit.steps:,} steps, R² {fit.explained:.3f}"),
        ("slots", slots),
        ("prefill", "running requests pause" if model.pauses else "together with running requests"),
    ]
    if model.grouped:
        facts.append(("batch", "only requests of the same length are computed together"))
    if plan.scalability is not None:
        facts.append(("throughput", plan.scalability.sentence))
    if plan.kilowatts is not None and plan.joules_per_token is not None:
        each = f"{significant(plan.joules_per_token)} J per output token as measured"
        facts.append(("energy", f"{each}, {significant(plan.kilowatts)} kW of the fleet at the peak"))
    if plan.price_source is not None:
        facts.append(("price of a GPU", str(plan.price_source)))
    return facts


def bill_rows(plan: Plan) -> list[tuple[str, str]]:
    """What tokens and requests cost at the peak, and what hosted APIs ask for the same; empty without a price."""
    bill = plan.bill
    if bill is None:
        return []
    at_peak = [
        f"{dollars(bill.per_million_output_tokens)} per million output tokens",
        f"{dollars(bill.per_thousand_requests)} per thousand requests",
        f"{significant(bill.requests_per_gpu_hour)} requests per GPU-hour",
    ]
    fleet = f"{dollars(bill.per_hour)} an hour, {dollars(bill.per_month)} a month for {counted(plan.count, 'replica')}"
    rows = [("fleet", plan.marked(fleet)), (f"at {plan.load.label}", plan.marked(", ".join(at_peak)))]
    for hosted in bill.hosted:
        reach = "" if hosted.cheaper else ", more than it can serve"
        million = f"{significant(hosted.break_even / 1e6)} million a month on{reach} ({hosted.source})"
        price = f"{dollars(hosted.per_thousand_requests)} per thousand requests"
        rows.append((hosted.name, f"{price}; the fleet costs less from {million}"))
    return rows


def plan_document(plan: Plan) -> dict[str, Any]:
    """What `--json` prints: seconds, tokens and requests per second, shares."""
    fitted = plan.basis.fitted
    document = {
        "schema": SCHEMA_VERSION,
        "answer": plan.sentence,
        "reliable": plan.reliable,
        "label": plan.label,
        "runs": plan.runs,
        "stages": [stage.name for stage in plan.basis.stages],
        "peak": as_document(plan.load) | {"seconds": plan.fleet.peak.seconds},
        "objectives": [str(objective) for objective in plan.objectives],
        "capacity": {
            "measured": plan.capacity,
            "simulated": plan.replicas.capacity,
        },
        "futures_required": SURE,
        "replicas": plan.replicas,
        "spares": plan.spares,
        "bill": plan.bill,
        "price_source": None if plan.price_source is None else str(plan.price_source),
        "energy": {"joules_per_token": plan.joules_per_token, "kilowatts": plan.kilowatts},
        "warnings": warnings_of(plan),
        "next_run": plan.next_run,
        "beyond_measured": plan.supported.beyond,
        "model": fitted.model.as_document() | {"undisturbed": fitted.fit.undisturbed},
        "fit": {
            "steps": fitted.fit.steps,
            "explained": fitted.fit.explained,
            "ten_seconds": fitted.fit.ratios,
            "draws": [as_document(draw.cost) | {"delivery": draw.delivery} for draw in fitted.draws],
        },
        "held_out": [
            {
                "stage": held.stage,
                "measured": held.measured,
                "predicted": {figure: held.predicted[figure] for figure in FIGURES},
                "errors": held.errors,
            }
            for held in plan.held_out
        ],
        "scalability": plan.scalability,
        "contradiction": plan.contradiction,
    }
    plain: dict[str, Any] = as_document(document)
    return plain


def alternatives_document(alternatives: Alternatives) -> dict[str, Any]:
    """What `--json` prints for several: each plan as for one, what it costs a month, and what dominates it."""
    return {
        "schema": SCHEMA_VERSION,
        "answer": alternatives.sentence,
        "cost_in": "US dollars per month" if alternatives.priced else "replicas",
        "alternatives": [
            {
                "name": alternative.name,
                "refused": alternative.refused,
                "plan": None if alternative.plan is None else plan_document(alternative.plan),
                "cost": None if alternative.plan is None else _cost(alternatives, alternative.plan),
                "dominated_by": None if alternative.plan is None else alternatives.dominated_by(alternative.name),
            }
            for alternative in alternatives.all
        ],
    }


def _cost(alternatives: Alternatives, plan: Plan) -> float:
    return plan.bill.per_month if alternatives.priced and plan.bill is not None else float(plan.count)


def alternatives_table(alternatives: Alternatives) -> TextTable:
    """What the model says of each alternative at the peak, and which are worth their cost."""
    headers = ("engine", "holds, simulated", "attainment", "TTFT p95", "TPOT p50", "")
    rows = []
    for alternative in alternatives.all:
        plan = alternative.plan
        if plan is None:
            rows.append((alternative.name, *[MISSING] * 4, "not planned"))
            continue
        chosen, by = plan.replicas.chosen, alternatives.dominated_by(alternative.name)
        doubt = "" if plan.reliable else f"{NOT_RELIABLE}, "
        rows.append(
            (
                alternative.name,
                f"{plan.replicas.capacity.met:.3g} {plan.replicas.capacity.unit}",
                format_share(chosen.share.median),
                _seconds(chosen.ttft_p95.median),
                _seconds(chosen.tpot_p50.median),
                doubt + ("on the front" if by is None else f"dominated by {by}"),
            )
        )
    caption = (
        "Holds: one replica within the objectives. Dominated: another is no worse in cost, TTFT p95 and TPOT p50, and "
        "better in one; the others are the Pareto front."
    )
    return TextTable("Simulated at the peak", headers, tuple(rows), (0, 5), caption)


def _seconds(value: float) -> str:
    """Answers of one token have no time per token."""
    return MISSING if math.isnan(value) else format_seconds(value)
