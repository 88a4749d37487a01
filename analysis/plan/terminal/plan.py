"""The plan in a terminal: the engine's model, its errors, what was measured, and the answer."""

from __future__ import annotations

import math

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from analysis.plan.answer import Plan, dollars
from analysis.plan.evidence.hold_out import HeldOut
from analysis.plan.fleet.replicas import Attainment
from analysis.plan.money.bill import MILLION, Bill
from analysis.plan.simulation.outcome import Band
from analysis.units import format_interval, format_seconds, format_share, significant
from analysis.verdict.statistics import Estimate
from records.load import Users

INACCURATE = 0.25  # error of a held-out prediction that is warned of
SHOWN = {
    "ttft_p50": "TTFT p50",
    "ttft_p95": "TTFT p95",
    "tpot_p50": "TPOT p50",
    "e2e_mean": "E2E mean",
    "throughput": "tokens/s",
}


def print_plan(console: Console, plan: Plan) -> None:
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column()
    for name, text in _facts(plan):
        facts.add_row(name, Text(text))
    console.print(facts)
    console.print()
    if plan.held_out:
        console.print(_held_out(plan))
        console.print(Text("Each stage predicted from the others: prediction over measurement, less 1.", style="dim"))
        console.print()
    for warning in (*plan.fitted.warnings, *_inaccurate(plan)):
        console.print(Text.assemble(("warn ", "yellow"), f"{warning}."))
    console.print(_attainments(plan))
    console.print(Text("Shares of requests that meet every objective; brackets hold nine in ten seeds.", style="dim"))
    console.print()
    if plan.bill is not None:
        _print_bill(console, plan, plan.bill)
    if plan.kilowatts is not None and plan.joules_per_token is not None:
        each, all_of_it = significant(plan.joules_per_token), significant(plan.kilowatts)
        console.print(f"Energy: {each} J per output token as measured, {all_of_it} kW of the fleet at the peak.")
        console.print()
    for sentence in _extras(plan):
        console.print(Text(sentence))
        console.print()
    if plan.next_run is not None:
        console.print(Text(f"Next: {plan.next_run}", style="dim"), soft_wrap=True)
    console.print(Text(plan.sentence, style="bold"))


def _extras(plan: Plan) -> list[str]:
    """What was asked for beside the number of replicas."""
    told = [] if plan.day is None else [plan.day.sentence]
    if plan.pools is not None:
        told.append(plan.pools.sentence)
    if plan.agents:
        told.append("\n".join(["Agents at", *(f"  {tier.sentence}" for tier in plan.agents)]))
    return told


def _facts(plan: Plan) -> list[tuple[str, str]]:
    cost, model = plan.fitted.model.cost, plan.fitted.model
    parts = [format_seconds(cost.base)]
    for seconds, of in (
        (cost.per_running, "running request"),
        (cost.per_token, "prompt token prefilled"),
        (cost.per_prompt, "prompt prefilled"),
    ):
        if seconds > 0:
            parts.append(f"{format_seconds(seconds)} per {of}")
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
    return {"saturation": "seen at saturation", "engine": "as the engine says"}[of]


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
    return f"{most}{where} (USL: σ {_estimate(law.contention)}, κ {_estimate(law.coherency)})"


def _safe(plan: Plan) -> str:
    assert plan.safe is not None
    if plan.safe.load.value is None:
        return f"no measured load meets the objectives: {plan.safe.load.why}"
    bound = "at least " if plan.safe.load.why else ""
    return f"one replica bears {bound}{_estimate(plan.safe.load)} {plan.safe.unit}"


def _inaccurate(plan: Plan) -> list[str]:
    errors = [(abs(one.error(figure)), one.stage) for one in plan.held_out for figure in SHOWN]
    worst, stage = max(((error, of) for error, of in errors if math.isfinite(error)), default=(0.0, ""))
    if worst <= INACCURATE:
        return []
    return [f"a prediction was off by {worst:.0%} at {stage}: where the measured safe load disagrees, believe it"]


def _held_out(plan: Plan) -> Table:
    table = Table(box=box.HORIZONTALS, padding=(0, 1, 0, 0), pad_edge=False, border_style="dim")
    table.add_column("error on")
    for title in SHOWN.values():
        table.add_column(title, justify="right")
    for one in plan.held_out:
        unknown = "" if one.slots_known else ", slots unknown"
        table.add_row(f"{one.stage}{unknown}", *(_error(one, figure) for figure in SHOWN))
    return table


def _error(one: HeldOut, figure: str) -> str:
    error = one.error(figure)
    if math.isnan(error):
        return "n/a"
    return "0.0 %" if abs(error) < 0.0005 else f"{100 * error:+.1f} %"


def _attainments(plan: Plan) -> Table:
    table = Table(box=box.HORIZONTALS, padding=(0, 1, 0, 0), pad_edge=False, border_style="dim")
    for title in ("replicas", "each", "attainment", *(str(one) for one in plan.objectives), "in flight", "tokens/s"):
        table.add_column(title, justify="right")
    for one in (plan.replicas.fewer, plan.replicas.chosen):
        if one is not None:
            table.add_row(*_row(plan, one))
    return table


def _print_bill(console: Console, plan: Plan, bill: Bill) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    table.add_row(
        "cost", f"{dollars(bill.per_hour)} an hour, {dollars(bill.per_month)} a month for {plan.count} replicas"
    )
    if plan.price_source is not None:
        table.add_row("price", f"of a GPU: {plan.price_source}")
    prompts = bill.per_million_prompt_tokens
    parts = [f"{dollars(prompts)} per million prompt tokens"] if prompts is not None else []
    parts += [f"{dollars(bill.per_million_output_tokens)} per million output tokens"]
    parts += [f"{dollars(bill.per_thousand_requests)} per thousand requests"]
    table.add_row("at the peak", ", ".join(parts))
    for one in bill.hosted:
        said = f"{dollars(one.per_thousand_requests)} per thousand requests; the fleet costs less from "
        reach = "" if one.cheaper else ", more than it can serve"
        table.add_row(
            one.name, f"{said}{significant(one.break_even / MILLION)} million a month on{reach} ({one.source})"
        )
    console.print(table)
    console.print()


def _row(plan: Plan, one: Attainment) -> list[str]:
    each = plan.load.value / one.replicas
    load = f"{each:.3g} users" if isinstance(plan.load, Users) else f"{each:.3g} req/s"
    shares = [share_band(one.share), *(share_band(each) for each in one.of)]
    return [f"{one.replicas}", load, *shares, significant(one.in_flight), significant(one.output)]


def share_band(band: Band) -> str:
    low, high = (format_share(end).removesuffix(" %") for end in (band.low, band.high))
    return f"{format_share(band.median)} [{low}, {high}]"
