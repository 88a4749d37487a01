"""The document of `enginebench plan`: replicas and cost for a peak, then what they rest on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict

import polars as pl

from enginebench.analysis.document import (
    Cell,
    Column,
    Document,
    NextStep,
    Number,
    Section,
    Table,
    Text,
    Tone,
    Word,
)
from enginebench.analysis.frame import SCHEMA, Frame, Row
from enginebench.analysis.plan.accuracy import MAX_ERROR, HeldOut
from enginebench.analysis.plan.candidates import Plan, plans_of, replicas_answer, stage_of
from enginebench.analysis.plan.fleet import Attainment
from enginebench.analysis.plan.not_planned import NotPlanned
from enginebench.analysis.plan.requests import FIGURES
from enginebench.analysis.plan.settings import PlanSettings
from enginebench.analysis.reports import GOOD, MISSED, NOT_ENOUGH, run_command
from enginebench.analysis.sections.candidates import by_engine, confirmed, latency_columns
from enginebench.analysis.sections.figures import first_figure
from enginebench.analysis.sections.warnings import warnings, warnings_section
from enginebench.analysis.verdict.capacity import Capacity
from enginebench.records.formatting import format_share
from enginebench.records.metrics import THROUGHPUT
from enginebench.records.view import Estimate, Missing

ENGINE = Column("engine", text=True)
SLO_MISSED = {NotPlanned.MISSED, NotPlanned.OUT_OF_REACH}


def plan_document(frame: Frame, settings: PlanSettings, plans: Sequence[Plan] = ()) -> Document:
    """Plan a peak for every candidate; `plans` are those of `plans_of`, if they were made before."""
    assert settings.peak is not None
    plans = plans or plans_of(frame, settings)
    answer = replicas_answer(settings.peak, tuple(plan.replicas for plan in plans))
    order = [each.name for each in answer.candidates]
    plans = sorted(plans, key=lambda plan: order.index(plan.name))
    warned = warnings(frame)
    sections = (
        Section("replica", "What one replica sustains", (_one_replica(frame, plans),)),
        Section("fleets", "Simulated futures", (*_fleets(plans, settings),)),
        Section("errors", "Prediction errors", (*_errors(plans),)),
        Section("fit", "What a step of the engine takes", (*_fits(plans),)),
        Section("bill", "The bill", (*_bills(plans, settings),)),
        warnings_section(warned),
    )
    return Document(
        title=" and ".join(frame.names),
        tested=frame.tested,
        objectives=frame.tier,
        answer=answer,
        candidates=by_engine(frame, answer.candidates, settings.peak).without_empty_columns(),
        figure=first_figure(frame),
        next=_next_step(frame, answer.candidates[0].name, answer.candidates[0].capacity),
        warnings=warned,
        sections=tuple(section for section in sections if section.blocks),
        frame=pl.concat([frame.table, pl.DataFrame(list(_rows(frame, plans)), schema=SCHEMA)]),
        exit_code=_exit_code(plans),
    )


def _exit_code(plans: Sequence[Plan]) -> int:
    if any(plan.replicas.number is not None for plan in plans):
        return GOOD
    return MISSED if all(plan.replicas.missing in SLO_MISSED for plan in plans) else NOT_ENOUGH


def _next_step(frame: Frame, name: str, capacity: Capacity | None) -> NextStep:
    """Confirm the capacity that the cheapest plan rests on; measure it, if it is not known; else plan with it."""
    command = run_command(frame, name)
    names = {"engine": name}
    if capacity is None or capacity.load is None:
        low = "1" if capacity is None or capacity.beyond is None else f"1-{capacity.beyond:g}"
        return NextStep("confirm", command("capacity", "--by", "users", "--search-range", low), names=names)
    if capacity.confirmed:
        return NextStep("buy", names=names)
    bounds = "-".join(f"{load:g}" for load in (capacity.load, capacity.beyond or 2 * capacity.load))
    by = "users" if capacity.unit == "users" else "rate"
    load = {"load": f"{capacity.load:g} {capacity.unit}"}
    return NextStep("confirm", command("capacity", "--by", by, "--search-range", bounds), names=names | load)


def _one_replica(frame: Frame, plans: Sequence[Plan]) -> Table:
    unit = frame.stages[0].load_unit if frame.stages else ""
    latencies = latency_columns(frame)
    columns = (
        ENGINE,
        Column(f"{unit} within the SLO"),
        Column("confirmed", text=True),
        Column("simulated"),
        Column("tokens/s there"),
        *(Column(f"{column.title} there") for column in latencies),
        Column("per 1M tokens"),
    )
    rows: list[tuple[Cell, ...]] = []
    for plan in plans:
        stage, engine = stage_of(frame, plan.name), frame.engine(plan.name)
        measured = stage is not None and bool(engine.at(stage))
        capacity = plan.replicas.capacity
        at_load = None if capacity is None else capacity.at_load
        simulated = None if plan.simulation is None else plan.simulation.replicas
        numbers = [
            Number(engine.column(stage or "", column), column.unit) if measured else None for column in latencies
        ]
        rows.append(
            (
                Word(plan.name),
                capacity,
                confirmed(None if at_load is None else at_load.slo),
                None if simulated is None else Number(Estimate(simulated.capacity.load)),
                Number(engine.estimate(stage or "", THROUGHPUT), "tokens/s") if measured else None,
                *numbers,
                None if plan.price is None else Number(plan.replicas.per_million, style="money"),
            )
        )
    return Table(
        "replica", "One replica, as measured and as simulated", columns, tuple(rows), 0
    ).without_empty_columns()


def _fleets(plans: Sequence[Plan], settings: PlanSettings) -> Iterator[Table]:
    """The smallest fleet that the simulation finds enough, and the next smaller one."""
    rows: list[tuple[Cell, ...]] = []
    for plan in plans:
        found = None if plan.simulation is None else plan.simulation.replicas
        if found is not None:
            rows += [_fleet(plan.name, each, settings) for each in (found.fewer, found.chosen) if each is not None]
    columns = (
        ENGINE,
        Column("replicas"),
        Column(f"{settings.load.unit} of each"),
        Column("futures that meet the SLO"),
        Column("requests within, median future"),
        Column("requests within, worst of 20"),
        Column("TTFT p95"),
        Column("TPOT p50", rank=1),
        Column("in flight", rank=2),
        Column("tokens/s", rank=1),
    )
    if rows:
        yield Table("fleets", f"Simulated at {settings.load.label}", columns, tuple(rows), 0)


def _fleet(name: str, at: Attainment, settings: PlanSettings) -> tuple[Cell, ...]:
    met = Number(Estimate(at.met, n=at.futures), "share", tone=Tone.GOOD if at.met >= 0.95 else Tone.BAD)
    return (
        Word(name),
        Number(Estimate(float(at.replicas)), style="count"),
        Number(Estimate(settings.load.value / at.replicas)),
        met,
        Number(Estimate(at.share.median), "share"),
        Number(Estimate(at.share.low), "share"),
        Number(Estimate(_known(at.ttft_p95.median)), "s"),
        Number(Estimate(_known(at.tpot_p50.median)), "s"),
        Number(Estimate(at.in_flight), "requests"),
        Number(Estimate(at.output), "tokens/s"),
    )


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _errors(plans: Sequence[Plan]) -> Iterator[Table | Text]:
    held_out = [(plan.name, held) for plan in plans for held in _held_out(plan)]
    if held_out:
        rows: list[tuple[Cell, ...]] = [
            (Word(name), Word(held.stage), *(_error(held.error(figure)) for figure in FIGURES))
            for name, held in held_out
        ]
        columns = (ENGINE, Column("load", text=True), *(Column(title) for title in FIGURES.values()))
        yield Table("errors", "Each load predicted from a fit to the others", columns, tuple(rows), 0)
        yield Text(
            f"The simulated number of replicas is shown if no prediction is more than {format_share(MAX_ERROR)} off. "
            "If it differs from the measured one, trust the measurement."
        )


def _held_out(plan: Plan) -> tuple[HeldOut, ...]:
    return () if plan.simulation is None or plan.simulation.basis is None else plan.simulation.basis.held_out


def _error(error: float) -> Cell:
    if math.isnan(error):
        return Missing.FEW_REQUESTS
    tone = Tone.BAD if abs(error) > MAX_ERROR else Tone.PLAIN
    return Number(Estimate(1 + error), style="change", tone=tone)


def _fits(plans: Sequence[Plan]) -> Iterator[Table]:
    rows: list[tuple[Cell, ...]] = []
    for plan in plans:
        basis = None if plan.simulation is None else plan.simulation.basis
        if basis is None:
            continue
        model, fit = basis.fitted.model, basis.fitted.fit
        cost = model.cost
        terms = (cost.base, cost.per_running, cost.per_token, cost.per_prompt, cost.batched, cost.per_running_beyond)
        rows.append(
            (
                Word(plan.name),
                *(Number(Estimate(term), "s") if term > 0 else None for term in terms),
                Number(Estimate(cost.knee)) if cost.per_running_beyond > 0 else None,
                Number(Estimate(float(model.slots)), style="count") if model.slots is not None else None,
                Word(model.slots_from.value),
                Word("paused" if model.pauses else "goes on") if model.synchronised else Word("separate streams"),
                Number(Estimate(float(fit.steps)), style="count"),
                Number(Estimate(fit.explained)),
                Number(Estimate(fit.drift), "share"),
            )
        )
    titles = ("a step", "+ running request", "+ prompt token", "+ prompt", "+ several", "+ request beyond", "beyond")
    columns = (
        ENGINE,
        *(Column(title) for title in titles),
        Column("slots"),
        Column("slots from", text=True, rank=1),
        Column("decoding during prefill", text=True, rank=2),
        Column("steps", rank=1),
        Column("R²"),
        Column("drift", rank=3),
    )
    if rows:
        title = "Fitted step time, and how much of its variance the fit explains (R²)"
        yield Table("fit", title, columns, tuple(rows), 0).without_empty_columns()


def _bills(plans: Sequence[Plan], settings: PlanSettings) -> Iterator[Table]:
    rows: list[tuple[Cell, ...]] = []
    for plan in plans:
        number, price = plan.replicas.number, plan.price
        if price is None:
            continue
        listed = price.listed
        rows.append(
            (
                Word(plan.name),
                Number(Estimate(None if number is None else float(number)), style="count"),
                Number(Estimate(float(price.gpus)), style="count"),
                Number(Estimate(price.per_hour), style="money"),
                Number(Estimate(None if number is None else price.per_hour * number), style="money"),
                Number(Estimate(plan.replicas.month), style="money"),
                Number(plan.replicas.per_million, style="money"),
                None if listed is None else Word(f"{listed.page}, {listed.as_of or 'undated'}"),
                None if listed is None or listed.verified else Word("UNVERIFIED", Tone.CAUTION),
            )
        )
    columns = (
        ENGINE,
        Column(f"replicas for {settings.load.label}"),
        Column("GPUs of each", rank=1),
        Column("a replica-hour"),
        Column("an hour"),
        Column("a month"),
        Column("per 1M tokens at capacity"),
        Column("price from", text=True, rank=2),
        Column("", text=True),
    )
    if rows:
        yield Table("bill", "US dollars; a month has 730 hours", columns, tuple(rows), 0).without_empty_columns()


def _rows(frame: Frame, plans: Sequence[Plan]) -> Iterator[Row]:
    """Every number of the plan in the form of the frame."""
    for plan in plans:
        place = {"study": frame.study or None, "part": frame.part or None, "engine": plan.name}
        yield from (place | row for row in _plan_rows(plan))


def _plan_rows(plan: Plan) -> Iterator[Row]:
    replicas = plan.replicas
    yield _cell("replicas", "measured", replicas.count, missing=replicas.missing)
    yield _cell("replicas", "simulated", replicas.simulated, missing=replicas.not_simulated)
    yield _cell("cost", "a month", replicas.month, "USD")
    cost = replicas.per_million
    yield _cell("cost", "per 1M output tokens", cost.value, "USD") | {"low": cost.low, "high": cost.high, "n": cost.n}
    for held in _held_out(plan):
        for figure, error in held.errors.items():
            yield _cell(figure, "held-out error", _known(error), "share") | {"stage": held.stage}
    if plan.simulation is None or plan.simulation.basis is None:
        return
    model, fit, found = plan.simulation.basis.fitted.model, plan.simulation.basis.fitted.fit, plan.simulation.replicas
    for name, value in asdict(model.cost).items():
        yield _cell("step cost", name, value if math.isfinite(value) else None)
    for name, number in (("slots", model.slots), ("steps", fit.steps), ("R²", fit.explained), ("drift", fit.drift)):
        yield _cell("fit", name, number)
    if found is not None:
        yield _cell("simulated capacity", "value", found.capacity.load, found.capacity.unit)
        for each in (found.fewer, found.chosen):
            if each is not None:
                yield _cell("futures that meet the SLO", f"{each.replicas} replicas", each.met, "share")
                yield _cell("requests within", f"{each.replicas} replicas", each.share.median, "share")


def _cell(metric: str, statistic: str, value: float | None, unit: str = "", missing: NotPlanned | None = None) -> Row:
    return {
        "metric": metric,
        "statistic": statistic,
        "unit": unit,
        "value": None if value is None else float(value),
        "missing": None if missing is None else missing.value,
    }
