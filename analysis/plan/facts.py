"""What a plan rests on, in words: the engine's fitted model, and what was measured without one."""

from __future__ import annotations

import math

from analysis.plan.answer import Plan
from records.formatting import format_interval, format_seconds, format_share, significant
from records.view import Estimate

INACCURATE = 0.25  # error of a held-out prediction that is warned of
ERRORS = {
    "ttft_p50": "TTFT p50",
    "ttft_p95": "TTFT p95",
    "tpot_p50": "TPOT p50",
    "e2e_mean": "E2E mean",
    "throughput": "tokens/s",
}
"""The figures whose errors are shown, and what they are called."""
ERRORS_MEAN = "Errors: prediction ÷ measurement − 1. Each load is predicted from a fit to the others."


def warnings_of(plan: Plan) -> list[str]:
    """What speaks against the plan, for the terminal and for the page; without full stops."""
    # Without its saturated stage, a fit may not know the slots, which the plan does.
    alike = [one for one in plan.held_out if one.slots_known or plan.fitted.model.slots is None]
    errors = [(abs(one.error(figure)), one.stage) for one in alike for figure in ERRORS]
    worst, stage = max(((error, of) for error, of in errors if math.isfinite(error)), default=(0.0, ""))
    said = list(plan.fitted.warnings)
    if worst > INACCURATE:
        said.append(
            f"a prediction was off by {format_share(worst)} at {stage}: if the measured load disagrees, trust that"
        )
    if plan.contradiction is not None:
        said.append(f"{plan.contradiction.sentence}: do not rely on the number of replicas")
    return said


def facts_of(plan: Plan) -> list[tuple[str, str]]:
    """(what, how much) for the terminal and for the page."""
    cost, model = plan.fitted.model.cost, plan.fitted.model
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
    seen = f"{model.most_running} ran at most"
    slots = f"not known ({seen})" if model.slots is None else f"{model.slots}, {_source(model.slots_from)} ({seen})"
    found = [
        ("engine", f"{plan.label}; {len(plan.stages)} stages of {len(plan.runs)} run{'s' * (len(plan.runs) > 1)}"),
        ("a step takes", f"{step}; {plan.fitted.fit.steps:,} steps, R² {plan.fitted.fit.explained:.3f}"),
        ("slots", slots),
        ("prefill", "running requests pause" if model.pauses else "together with running requests"),
    ]
    if model.grouped:
        found.append(("batch", "only requests of the same length are computed together"))
    if plan.scalability is not None:
        found.append(("throughput", _scalability(plan)))
    if plan.safe is not None:
        found.append(("measured", _safe(plan)))
    return found


def _source(of: str) -> str:
    return {"saturation": "seen at saturation", "engine": "reported by the engine"}[of]


def _estimate(one: Estimate) -> str:
    if one.value is None or math.isinf(one.value):
        return "none"
    high = one.high if one.high is None or math.isfinite(one.high) else None
    return f"{significant(one.value)} {format_interval(one.low, high)}".strip()


def _scalability(plan: Plan) -> str:
    assert plan.scalability is not None
    law = plan.scalability
    most = (
        f"at most {_estimate(law.most)} tokens/s" if math.isfinite(law.most.value or 0) else "no limit was approached"
    )
    where = f", at {_estimate(law.peak)} in flight" if math.isfinite(law.peak.value or math.inf) else ""
    scatter = "" if law.scatter is None else f"; stages scatter by {format_share(law.scatter)} about it"
    return f"{most}{where} (USL: σ {_estimate(law.contention)}, κ {_estimate(law.coherency)}{scatter})"


def _safe(plan: Plan) -> str:
    assert plan.safe is not None
    if plan.safe.load.value is None:
        return f"no measured load meets the objectives: {plan.safe.load.why}"
    bound = "at least " if plan.safe.load.why else ""
    limit = "" if plan.safe.limit is None else f", limited by {plan.safe.limit.sentence}"
    return f"one replica serves {bound}{_estimate(plan.safe.load)} {plan.safe.unit}{limit}"
