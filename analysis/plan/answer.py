"""From runs to the answer of `enginebench plan`: the model, how far it is off, and how many replicas the peak needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from analysis.data.load import RunData
from analysis.plan.basis import Basis, read_basis
from analysis.plan.bill import Bill, bill
from analysis.plan.contradiction import Contradiction, contradiction
from analysis.plan.hold_out import HeldOut, hold_out
from analysis.plan.model import FittedModel
from analysis.plan.prices import Source, gpu_hours, price_source, read_prices
from analysis.plan.replicas import Fleet, Measured, Peak, Replicas, fewest_replicas
from analysis.plan.safe_load import SafeLoad, safe_load
from analysis.plan.scalability import Scalability, scalability
from analysis.plan.settings import Balancer, PlanSettings
from analysis.summary.run_summary import RunSummary
from analysis.summary.slo import objective_text
from records.formatting import format_share, significant
from records.load import Load, Users
from records.slo import Objective
from records.view import StageView


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that `enginebench plan` says of one engine."""

    label: str
    runs: tuple[str, ...]
    basis: Basis
    held_out: tuple[HeldOut, ...]
    scalability: Scalability | None
    safe: SafeLoad | None
    contradiction: Contradiction | None  # of the model and the measurements
    asked: Load  # the peak
    headroom: float
    load: Load  # the peak with headroom
    objectives: tuple[Objective, ...]
    replicas: Replicas
    spares: int
    peak_seconds: float
    bill: Bill | None  # None without a price
    peak: Peak
    balancer: Balancer
    gpu_hours: tuple[int, float | None]  # GPUs of a replica, and the price of an hour of one
    price_source: Source | None  # None where the price is the user's own
    joules_per_token: float | None  # measured, at the stage with the highest throughput

    @property
    def fitted(self) -> FittedModel:
        return self.basis.fitted

    @property
    def measured(self) -> Measured:
        return self.basis.measured

    @property
    def stages(self) -> tuple[str, ...]:
        return tuple(stage.name for stage in self.basis.stages)

    @property
    def count(self) -> int:
        """Replicas to order, spares included."""
        return self.replicas.count + self.spares

    @property
    def sentence(self) -> str:
        """The answer."""
        found = self.replicas
        wanted = " and ".join(map(objective_text, self.objectives))
        number = f"{found.count} replica{'s' if found.count != 1 else ''} [{found.low}, {found.high}]"
        spares = f" and {self.spares} spare" if self.spares else ""
        parts = [f"{self.load.label} at {wanted}: {number}{spares}"]
        if found.limited_by is not None:
            parts[0] += f", limited by {found.limited_by}"
        if found.fewer is not None:
            keep = "hold" if found.fewer.replicas != 1 else "holds"
            parts.append(f"{found.fewer.replicas} {keep} {format_share(found.fewer.share.median)}")
        if found.bounded:
            parts.append(f"fewer may do, but no run had more than {self._largest} on one replica")
        if self.contradiction is not None:
            parts.append("but the measurements contradict the model")
        if self.bill is not None:
            parts.append(f"{dollars(self.bill.per_hour)} an hour, {dollars(self.bill.per_month)} a month")
        return "; ".join(parts) + "."

    @property
    def kilowatts(self) -> float | None:
        """Of the fleet at the peak, as far as the measured energy per token tells."""
        return None if self.joules_per_token is None else self.joules_per_token * self.replicas.chosen.output / 1000

    @property
    def _largest(self) -> str:
        return (
            Users(round(self.measured.users)).label
            if isinstance(self.load, Users)
            else f"{self.measured.rate:.3g} req/s"
        )

    @property
    def next_run(self) -> str | None:
        """The command of a run that would let fewer replicas be judged; `None` where there is no need."""
        if not self.replicas.bounded:
            return None
        per_replica = self.load.value / max(self.replicas.count - 1, 1)
        if isinstance(self.load, Users):
            return f"enginebench run concurrent --url URL --stages {int(np.ceil(per_replica))}"
        return f"enginebench run rate --url URL --rate {significant(per_replica).replace(',', '')}"


def dollars(amount: float) -> str:
    """$1,234 or $0.0123: three significant digits."""
    return f"${significant(amount)}"


def make_plan(label: str, runs: Sequence[RunData], summaries: Sequence[RunSummary], settings: PlanSettings) -> Plan:
    """A plan for one engine, called `label`, from its runs. Raises `CannotPlan`."""
    asked = settings.peak
    assert asked is not None
    basis = read_basis(runs, settings.allow_drift)
    load = with_headroom(asked, settings.headroom)
    peak = Peak(load, basis.lengths, settings.peak_seconds, think=basis.think)
    fleet = Fleet(basis.model, peak, settings.slo, settings.balancer)
    found = fewest_replicas(fleet, basis.measured)
    prices = read_prices(settings.prices)
    gpus, hourly = gpu_hours(settings, prices, label)
    every = [stage for summary in summaries for stage in summary.stages]
    return Plan(
        label=label,
        runs=tuple(summary.run_id for summary in summaries),
        basis=basis,
        held_out=hold_out(basis.stages, basis.declared_slots),
        scalability=scalability(every),
        safe=safe_load([stage for stage in every if stage.load_unit == load.unit]),
        contradiction=contradiction(basis.model, basis.stages, settings.slo),
        asked=asked,
        headroom=settings.headroom,
        load=load,
        objectives=settings.slo,
        replicas=found,
        spares=settings.spares,
        peak_seconds=settings.peak_seconds,
        bill=None
        if hourly is None
        else bill(found.count + settings.spares, gpus, hourly, found.chosen, basis.model, peak.lengths, prices),
        peak=peak,
        balancer=settings.balancer,
        gpu_hours=(gpus, hourly),
        price_source=price_source(settings, prices, label),
        joules_per_token=_energy(every),
    )


def with_headroom(load: Load, headroom: float) -> Load:
    if isinstance(load, Users):
        return Users(int(np.ceil(load.count * (1 + headroom))))
    return msgspec.structs.replace(load, per_second=load.per_second * (1 + headroom))


def _energy(stages: Sequence[StageView]) -> float | None:
    told = [(stage.throughput.value or 0.0, stage.energy_per_token) for stage in stages]
    known = [(throughput, joules) for throughput, joules in told if joules is not None]
    return max(known)[1] if known else None
