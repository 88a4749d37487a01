"""The document of `enginebench plan`: replicas and cost for a peak, then the evidence."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict

import polars as pl

from enginebench.analysis.answer import HOURS_A_MONTH, NoAnswer
from enginebench.analysis.document import (
    ENGINE,
    Cell,
    Column,
    Document,
    Number,
    Section,
    SliderEngine,
    Sliders,
    Table,
    Tone,
    Word,
    count,
    money,
)
from enginebench.analysis.frame import SCHEMA, Frame, Row, column_of
from enginebench.analysis.next_step import next_step_for_peak
from enginebench.analysis.plan.accuracy import MAX_ERROR
from enginebench.analysis.plan.fleet import SURE, Attainment
from enginebench.analysis.plan.not_planned import NotPlanned
from enginebench.analysis.plan.replicas import Plan, plans_of, replicas_answer
from enginebench.analysis.plan.requests import FIGURES
from enginebench.analysis.sections.candidates import by_engine
from enginebench.analysis.sections.figures import first_figure
from enginebench.analysis.sections.loads import loads
from enginebench.analysis.sections.warnings import warnings
from enginebench.analysis.settings import PlanSettings
from enginebench.analysis.verdict.slo_verdict import Status
from enginebench.records.exit_codes import GOOD, INVALID, MISSED, NOT_ENOUGH
from enginebench.records.formatting import CURRENCY, format_share, in_words
from enginebench.records.view import Estimate, Missing, is_invalid

COSTS = ("a step", "+ running request", "+ prompt token", "+ prompt", "+ several", "+ request beyond", "beyond")
"""Titles of the fields of `StepCost`."""


def plan_document(
    frame: Frame, settings: PlanSettings, plans: Sequence[Plan] = (), allow_invalid: bool = False
) -> Document:
    """Plan a peak for every candidate; `plans` are the results of `plans_of`, if already computed."""
    assert settings.peak is not None
    plans = plans or plans_of(frame, settings)
    planned = replicas_answer(settings.peak, tuple(plan.replicas for plan in plans))
    order = [candidate.name for candidate in planned.candidates]
    plans = sorted(plans, key=lambda plan: order.index(plan.name))
    warned = warnings(frame)
    invalid = is_invalid(warning.severity for warning in warned)
    comparable = not any(difference.incomparable for difference in frame.differences)
    step = next_step_for_peak(frame, planned.candidates[0], settings.load, settings.spares)
    sections = (
        loads(frame),
        Section("bill", "The bill", (*_bills(plans, settings),)),
        Section("simulation", "Simulated futures", (*_fleets(plans, settings),)),
        Section("errors", "Prediction errors", (*_errors(plans),)),
        Section("fit", "What a step of the engine takes", (*_fits(plans),)),
    )
    return Document(
        tested=frame.tested,
        objectives=frame.objectives,
        answer=planned if comparable else NoAnswer.DIFFERENT_WORKLOADS,
        candidates=by_engine(frame, planned.candidates, settings.peak).without_empty_columns(),
        figure=first_figure(frame),
        next=step if comparable else None,
        warnings=warned,
        sections=tuple(section for section in sections if section.blocks),
        frame=pl.concat([frame.table, pl.DataFrame(list(_rows(frame, plans)), schema=SCHEMA)]),
        exit_code=INVALID if invalid and not allow_invalid else _exit_code(plans),
        sliders=_sliders(frame, settings, plans),
    )


def _exit_code(plans: Sequence[Plan]) -> int:
    if any(plan.replicas.number is not None for plan in plans):
        return GOOD
    out_of_reach = {NotPlanned.MISSED, NotPlanned.OUT_OF_REACH}
    return MISSED if all(plan.replicas.missing in out_of_reach for plan in plans) else NOT_ENOUGH


def _sliders(frame: Frame, settings: PlanSettings, plans: Sequence[Plan]) -> Sliders:
    """Return what each engine sustains within the SLO as judged and, to compare with other limits, the percentiles at
    each load (`None` if an objective without a slider is missed, or requests failed)."""
    assert settings.peak is not None
    columns = [(objective, column) for objective in frame.objectives if (column := column_of(objective)) is not None]
    engines = []
    for plan in plans:
        capacity, engine, simulation = plan.replicas.capacity, frame.engine(plan.name), plan.simulation
        by_load: list[tuple[float, tuple[float | None, ...]]] = []
        sustained = None
        if capacity is not None and capacity.unit == settings.load.unit:
            sustained = capacity.load
            for at in capacity.verdicts:
                values = [engine.column(at.stage, column).value for _, column in columns]
                hidden = [own.status for own in at.slo.objectives if column_of(own.objective) is None]
                missed = Status.MISSED in hidden
                by_load.append((at.load, tuple(None if missed or v is None or math.isinf(v) else v for v in values)))
        fleet = None if simulation is None else simulation.replicas
        simulated = None if fleet is None else settings.load.value / fleet.count
        engines.append(SliderEngine(plan.name, plan.price, sustained, simulated, tuple(by_load)))
    return Sliders(
        unit=settings.load.unit,
        peak=settings.peak.value,
        headroom=settings.headroom,
        spares=settings.spares,
        hours=HOURS_A_MONTH,
        limits=tuple((objective.text.partition(" ≤")[0], objective.limit) for objective, _ in columns),
        engines=tuple(engines),
    )


def _bills(plans: Sequence[Plan], settings: PlanSettings) -> Iterator[Table]:
    rows: list[tuple[Cell, ...]] = []
    for plan in plans:
        number, price = plan.replicas.number, plan.price
        if price is not None:
            hourly = None if number is None else price * number
            costs = map(money, (price, hourly, plan.replicas.month, plan.replicas.per_million))
            rows.append((Word(plan.name), count(number), *costs))
    titles = (f"replicas for {settings.load.label}", "a replica-hour", "an hour", "a month")
    columns = (ENGINE, *map(Column, titles), Column("per 1M tokens at capacity"))
    if rows:
        title = f"{CURRENCY.name}; a month has {HOURS_A_MONTH:g} hours"
        yield Table("bill", title, columns, tuple(rows), 0).without_empty_columns()


def _fleets(plans: Sequence[Plan], settings: PlanSettings) -> Iterator[Table]:
    """Show the smallest sufficient fleet by simulation and the next smaller one, or why there is none."""
    rows: list[tuple[Cell, ...]] = []
    for plan in plans:
        simulation = plan.simulation
        if simulation is not None and simulation.missing is not None:
            rows.append((Word(plan.name), None, Word(simulation.missing.value, Tone.CAUTION), None, None, None, None))
        elif simulation is not None and simulation.replicas is not None:
            fleet = simulation.replicas
            sustained = None if fleet.capacity is None else Number(Estimate(fleet.capacity))
            rows += [_fleet(plan.name, at, sustained, settings) for at in (fleet.fewer, fleet.chosen) if at]
    columns = (
        ENGINE,
        Column("users one sustains"),
        Column("replicas"),
        Column(f"{settings.load.unit} of each"),
        Column("futures that meet the SLO"),
        Column("requests within the limits, median future"),
        Column("requests within the limits, worst of 20"),
    )
    if rows:
        bounded = in_words([plan.name for plan in plans if plan.replicas.at_most])
        title = f"Simulated at {settings.load.label}"
        title += f"; fewer of {bounded} may be enough, with more load on each than was measured" if bounded else ""
        yield Table("fleets", title, columns, tuple(rows), 0).without_empty_columns()


def _fleet(name: str, at: Attainment, sustained: Cell, settings: PlanSettings) -> tuple[Cell, ...]:
    return (
        Word(name),
        sustained,
        count(at.replicas),
        Number(Estimate(settings.load.value / at.replicas)),
        Number(Estimate(at.met, n=at.futures), "share", tone=Tone.GOOD if at.met >= SURE else Tone.BAD),
        Number(Estimate(at.share.median), "share"),
        Number(Estimate(at.share.low), "share"),
    )


def _errors(plans: Sequence[Plan]) -> Iterator[Table]:
    rows: list[tuple[Cell, ...]] = [
        (Word(plan.name), Word(held.stage), *(_error(held.errors[figure]) for figure in FIGURES))
        for plan in plans
        if plan.simulation is not None
        for held in plan.simulation.held_out
    ]
    columns = (ENGINE, Column("load", text=True), *(Column(title) for title in FIGURES.values()))
    if rows:
        title = f"Each load predicted from a fit to the others; more than {format_share(MAX_ERROR)} off is a poor fit"
        yield Table("errors", title, columns, tuple(rows), 0)


def _error(error: float) -> Cell:
    if math.isnan(error):
        return Missing.FEW_REQUESTS
    tone = Tone.BAD if abs(error) > MAX_ERROR else Tone.PLAIN
    return Number(Estimate(1 + error), style="change", tone=tone)


def _fits(plans: Sequence[Plan]) -> Iterator[Table]:
    rows: list[tuple[Cell, ...]] = []
    for plan in plans:
        model = None if plan.simulation is None else plan.simulation.model
        if model is None:
            continue
        *terms, knee = asdict(model.fit.cost).values()
        cells: list[Cell] = [Number(Estimate(term), "s") if term > 0 else None for term in terms]
        cells.append(None if math.isinf(knee) else Number(Estimate(knee)))
        cells.append(None if model.slots is None else count(model.slots))
        cells += [count(model.fit.steps), Number(Estimate(model.fit.explained))]
        rows.append((Word(plan.name), *cells))
    columns = (
        ENGINE,
        *map(Column, COSTS),
        Column("slots"),
        Column("steps", rank=2),
        Column("R²"),
    )
    if rows:
        title = "Fitted step time, and how much of its variance the fit explains (R²)"
        yield Table("fit", title, columns, tuple(rows), 0).without_empty_columns()


def _rows(frame: Frame, plans: Sequence[Plan]) -> Iterator[Row]:
    """Yield every number of the plan as a row of the frame."""
    for plan in plans:
        place = {"study": frame.study or None, "part": frame.part or None, "engine": plan.name}
        yield from (place | row for row in _plan_rows(plan))


def _plan_rows(plan: Plan) -> Iterator[Row]:
    replicas, simulation = plan.replicas, plan.simulation
    yield _cell("replicas", "measured", replicas.count, missing=replicas.missing)
    yield _cell("replicas", "simulated", replicas.simulated, missing=replicas.not_simulated)
    yield _cell("cost", "a month", replicas.month, CURRENCY.code)
    cost = replicas.per_million
    total = _cell("cost", "per 1M output tokens", cost.value, CURRENCY.code)
    yield total | {"low": cost.low, "high": cost.high, "n": cost.n}
    if simulation is None:
        return
    for held in simulation.held_out:
        for figure, error in held.errors.items():
            yield _cell(figure, "held-out error", error, "share") | {"stage": held.stage}
    if (model := simulation.model) is not None:
        for name, value in (asdict(model.fit.cost) | {"slots": model.slots, "R²": model.fit.explained}).items():
            yield _cell("fit", name, value)
    if (fleet := simulation.replicas) is not None:
        if fleet.capacity is not None:
            yield _cell("simulated capacity", "value", fleet.capacity)
        for at in filter(None, (fleet.fewer, fleet.chosen)):
            yield _cell("futures that meet the SLO", f"{at.replicas} replicas", at.met, "share")
            yield _cell("requests within", f"{at.replicas} replicas", at.share.median, "share")


def _cell(metric: str, statistic: str, value: float | None, unit: str = "", missing: NotPlanned | None = None) -> Row:
    return {
        "metric": metric,
        "statistic": statistic,
        "unit": unit,
        "value": float(value) if value is not None and math.isfinite(value) else None,
        "missing": None if missing is None else missing.value,
    }
