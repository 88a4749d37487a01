"""From runs to the answer of `enginebench plan`: the model, how far it is off, and how many replicas the peak needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from enginebench.analysis.compare.capacity import SloCapacity
from enginebench.analysis.data.load import RunData, load_run
from enginebench.analysis.plan.accuracy import (
    INACCURATE,
    Contradiction,
    HeldOut,
    LargestError,
    contradiction,
    fit_stages,
    hold_out,
    largest_error,
)
from enginebench.analysis.plan.fleet import Fleet, Peak
from enginebench.analysis.plan.measured import (
    MeasuredStage,
    SupportedLoads,
    declared_slots,
    energy_per_token,
    load_points,
    measured_capacity,
    measured_stages,
    supported_loads,
)
from enginebench.analysis.plan.model import FittedModel
from enginebench.analysis.plan.prices import Bill, Source, bill, dollars, gpu_hours, price_source, read_prices
from enginebench.analysis.plan.replicas import Replicas, fewest_replicas, more_load
from enginebench.analysis.plan.requests import check_objectives, pooled, simulated
from enginebench.analysis.plan.scalability import Scalability, scalability
from enginebench.analysis.plan.settings import CannotPlan, PlanSettings
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.formatting import counted, significant
from enginebench.records.load import Load, Users
from enginebench.records.slo import Objective, of_tier, tiers_of

NOT_RELIABLE = "not reliable"


@dataclass(frozen=True, slots=True)
class Basis:
    """What every answer rests on: the stages of one engine's runs, and the model fitted to them."""

    stages: tuple[MeasuredStage, ...]
    fitted: FittedModel

    def supported(self, objectives: Sequence[Objective] = ()) -> SupportedLoads:
        model = self.fitted.model
        return supported_loads(self.stages, model.slots is not None or not model.synchronised, objectives)

    def peak(self, load: Load, seconds: float) -> Peak:
        """What is asked at the peak: the lengths and the users' pauses of all stages together."""
        pauses = [stage.think for stage in self.stages if len(stage.think)]
        think = np.concatenate(pauses) if pauses else np.zeros(0)
        return Peak(load, pooled([stage.lengths for stage in self.stages]), seconds, think=think)


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that `enginebench plan` says of one engine."""

    label: str
    runs: tuple[str, ...]
    basis: Basis
    supported: SupportedLoads
    held_out: tuple[HeldOut, ...]
    scalability: Scalability | None
    capacity: SloCapacity | None  # of one replica, as measured
    contradiction: Contradiction | None  # of the model and the measurements
    asked: Load  # the peak
    headroom: float
    objectives: tuple[Objective, ...]  # of the first tier
    other_tiers: tuple[str, ...]
    fleet: Fleet  # under the peak with headroom
    replicas: Replicas
    spares: int
    bill: Bill | None  # None without a price
    gpu_hours: tuple[int, float | None]  # GPUs of a replica, and the price of an hour of one
    price_source: Source | None  # None where the price is the user's own
    joules_per_token: float | None  # measured, at the stage with the highest throughput

    @property
    def load(self) -> Load:
        """The peak with headroom."""
        return self.fleet.peak.load

    @property
    def count(self) -> int:
        """Replicas to order, spares included."""
        return self.replicas.count + self.spares

    @property
    def largest_error(self) -> LargestError | None:
        """Of the held-out predictions."""
        return largest_error(self.held_out, self.basis.fitted.model.slots is not None)

    @property
    def reliable(self) -> bool:
        """Neither do the measurements contradict the model, nor is a held-out prediction further off than 25 %."""
        error = self.largest_error
        return self.contradiction is None and (error is None or error.error <= INACCURATE)

    def marked(self, text: str) -> str:
        """A number of the plan, with a mark where it must not look certain."""
        return text if self.reliable else f"{text} ({NOT_RELIABLE})"

    @property
    def goal(self) -> str:
        """`80 users at TTFT p95 ≤ 300 ms and TPOT p95 ≤ 50 ms`"""
        return f"{self.load.label} at {' and '.join(objective.text for objective in self.objectives)}"

    @property
    def sentence(self) -> str:
        """The answer."""
        answer = self.replicas
        high = "no bound" if answer.high is None else answer.high
        number = f"{counted(answer.count, 'replica')} [{answer.low}, {high}]"
        number += f" and {self.spares} spare" if self.spares else ""
        number += f" at {dollars(self.bill.per_month)} a month" if self.bill is not None else ""
        parts = [f"{self.goal}: {self.marked(number)}"]
        if answer.limited_by is not None:
            parts[0] += f", limited by {answer.limited_by.sentence}"
        if answer.bounded:
            parts.append(f"fewer may do, but the runs support no more than {self.largest} on one replica")
        if self.contradiction is not None:
            parts.append("but the measurements contradict the model")
        return "; ".join(parts) + "."

    @property
    def largest(self) -> str:
        """The largest load of one replica that the records support."""
        most = self.supported.largest(self.load)
        return Users(int(most)).label if isinstance(self.load, Users) else f"{most:.3g} req/s"

    @property
    def kilowatts(self) -> float | None:
        """Of the fleet at the peak, as far as the measured energy per token tells."""
        return None if self.joules_per_token is None else self.joules_per_token * self.replicas.chosen.output / 1000

    @property
    def next_run(self) -> str | None:
        """The command of a run that would let fewer replicas be judged; `None` where there is no need."""
        if not self.replicas.bounded:
            return None
        per_replica = self.load.value / max(self.replicas.count - 1, 1)
        if isinstance(self.load, Users):
            return f"enginebench run concurrent --url URL --stages {int(np.ceil(per_replica))}"
        return f"enginebench run rate --url URL --rate {significant(per_replica).replace(',', '')}"


def read_basis(runs: Sequence[RunData], allow_drift: bool = False) -> Basis:
    """Raises `CannotPlan`, also where the machine drifted and that is not allowed."""
    stages = measured_stages(runs)
    fitted = fit_stages(stages, declared_slots(runs))
    worst = fitted.fit.worst
    if fitted.fit.drifted and worst is not None and not allow_drift:
        raise CannotPlan(
            f"the machine drifted while it was measured: steps took {worst.ratio:.2f} times the fitted cost for 10 s "
            f"at {worst.stage}. Measure again on a quiet machine, with the loads interleaved, or accept it with "
            "--allow-drift."
        )
    return Basis(tuple(stages), fitted)


def make_plan(label: str, summaries: Sequence[RunSummary], settings: PlanSettings) -> Plan:
    """A plan for one engine, called `label`, from its runs, whose records are read again. Raises `CannotPlan`."""
    asked = settings.peak
    assert asked is not None
    objectives, (_, *other_tiers) = of_tier(settings.slo), tiers_of(settings.slo)
    check_objectives(objectives)
    runs = [load_run(summary.folder) for summary in summaries]
    basis = read_basis(runs, settings.allow_drift)
    load = more_load(asked, settings.headroom)
    fleet = Fleet(basis.fitted, basis.peak(load, settings.peak_seconds), simulated(objectives), settings.balancer)
    supported = basis.supported(objectives)
    replicas = fewest_replicas(fleet, supported)
    prices = read_prices(settings.prices)
    gpus, hourly = gpu_hours(settings, prices, label)
    paid = replicas.count + settings.spares
    return Plan(
        label=label,
        runs=tuple(run.meta.run_id for run in runs),
        basis=basis,
        supported=supported,
        held_out=hold_out(basis.stages, basis.fitted.declared_slots),
        scalability=scalability(load_points(stage for summary in summaries for stage in summary.stages)),
        capacity=measured_capacity(summaries, load),
        contradiction=contradiction(basis.fitted.model, basis.stages, objectives),
        asked=asked,
        headroom=settings.headroom,
        objectives=objectives,
        other_tiers=tuple(other_tiers),
        fleet=fleet,
        replicas=replicas,
        spares=settings.spares,
        bill=None if hourly is None else bill(paid, gpus, hourly, replicas.chosen, prices),
        gpu_hours=(gpus, hourly),
        price_source=price_source(settings, prices, label),
        joules_per_token=energy_per_token(summaries),
    )
