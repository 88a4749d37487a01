"""A plan for each candidate of a frame: replicas as measured and as simulated, and what they cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from enginebench.analysis.answer import HOURS_A_MONTH, Replicas, ReplicasAnswer
from enginebench.analysis.data.run_data import load_run
from enginebench.analysis.engine_runs import by_settings
from enginebench.analysis.frame import Frame
from enginebench.analysis.plan.not_planned import NotPlanned
from enginebench.analysis.settings import PlanSettings
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.analysis.verdict.capacity import Capacity
from enginebench.records.load import Load
from enginebench.records.metrics import FAILURE_SHARE, THROUGHPUT
from enginebench.records.rules import MAX_FAILURE_SHARE
from enginebench.records.view import Estimate, Missing

if TYPE_CHECKING:
    from enginebench.analysis.plan.simulate import Simulation

HOUR, MILLION = 3600.0, 1e6


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan for a candidate. `price` is US dollars per hour of a replica; `simulation` is `None` without a peak."""

    replicas: Replicas
    price: float | None
    simulation: Simulation | None

    @property
    def name(self) -> str:
        return self.replicas.name


def separated(summaries: Sequence[RunSummary]) -> list[RunSummary]:
    """Give runs of one label different names if their engines had different settings: `vllm (max_num_seqs=8)`."""
    return [replace(run, label=name) for name, runs in by_settings(summaries).items() for run in runs]


def plans_of(frame: Frame, settings: PlanSettings) -> tuple[Plan, ...]:
    """Plan every candidate, in the order of the frame; without a peak, only the cost of tokens."""
    return tuple(_plan(frame, settings, name) for name in frame.names)


def replicas_of(frame: Frame, settings: PlanSettings) -> tuple[Replicas, ...]:
    """Return the replicas and costs of every candidate, in the order of the frame; nothing if neither is requested."""
    if settings.peak is None and not settings.price:
        return ()
    return tuple(plan.replicas for plan in plans_of(frame, settings))


def replicas_answer(peak: Load, replicas: tuple[Replicas, ...]) -> ReplicasAnswer:
    """Put the cheapest candidate first or, if some have no price, the one with the fewest replicas."""
    planned = [candidate for candidate in replicas if candidate.number is not None]
    priced = all(candidate.month is not None for candidate in planned)

    def cost(candidate: Replicas) -> tuple[float, float]:
        number = math.inf if candidate.number is None else float(candidate.number)
        month = math.inf if candidate.month is None else candidate.month
        return month if priced else number, number

    return ReplicasAnswer(peak, tuple(sorted(replicas, key=cost)))


def measured_replicas(capacity: Capacity | None, load: Load) -> int | NotPlanned:
    """Return ⌈peak ÷ measured capacity⌉, or why it is unknown. Nothing is interpolated between measured loads."""
    if capacity is None or (capacity.load is None and capacity.beyond is None):
        return NotPlanned.NOT_MEASURED
    if capacity.unit != load.unit:
        return NotPlanned.OTHER_UNIT
    if not capacity.load:
        return NotPlanned.MISSED if capacity.unknown is None else NotPlanned.NOT_MEASURED
    return math.ceil(round(load.value / capacity.load, 9))


def _plan(frame: Frame, settings: PlanSettings, name: str) -> Plan:
    capacity, price = frame.capacities.get(name), settings.price_of(name)
    per_million = token_cost(price, _throughput(frame, name))
    if settings.peak is None:
        return Plan(Replicas(name, capacity, None, None, None, per_million=per_million), price, None)
    from enginebench.analysis.plan.simulate import simulate  # SciPy's optimisers are slow to import

    runs = [load_run(run.folder) for run in frame.engine(name).runs]
    simulation = simulate(runs, settings.load, settings.peak_seconds, frame.objectives)
    measured = measured_replicas(capacity, settings.load)
    count, missing = (None, measured) if isinstance(measured, NotPlanned) else (measured + settings.spares, None)
    simulated = None if simulation.replicas is None else simulation.replicas.count + settings.spares
    at_most = simulation.replicas is not None and simulation.replicas.bounded
    replicas = Replicas(name, capacity, count, simulated, None, missing, simulation.missing, per_million, at_most)
    if price is not None and replicas.number is not None:
        replicas = replace(replicas, month=HOURS_A_MONTH * price * replicas.number)
    return Plan(replicas, price, simulation)


def token_cost(price: float | None, throughput: Estimate) -> Estimate:
    """Return the cost of a million output tokens in US dollars: price per hour ÷ tokens per hour, with the interval of
    the throughput (tokens/s)."""
    if price is None or not throughput.value:
        return Estimate(None, missing=throughput.missing or Missing.NOT_OBSERVED)
    if throughput.low is not None and throughput.low <= 0:
        throughput = replace(throughput, low=None, high=None, missing=Missing.FEW_REPEATS)
    return throughput.inverse.scaled(MILLION * price / HOUR)


def _throughput(frame: Frame, name: str) -> Estimate:
    """Return output tokens/s at the measured capacity or, without an SLO, at the common load."""
    stage = frame.stage
    if frame.objectives:
        capacity = frame.capacities.get(name)
        verdict = None if capacity is None else capacity.at_load
        stage = None if verdict is None else verdict.stage
    if stage is None or not frame.engine(name).at(stage):
        return Estimate(None, missing=Missing.NOT_OBSERVED)
    failed = frame.engine(name).estimate(stage, FAILURE_SHARE).value
    if failed is not None and failed > MAX_FAILURE_SHARE:
        return Estimate(None, missing=Missing.FAILED)
    return frame.engine(name).estimate(stage, THROUGHPUT)
