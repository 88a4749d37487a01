"""From runs to the answer of `enginebench plan`: the model, how far it is off, and how many replicas the peak needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from analysis.plan.engine.model import FittedModel
from analysis.plan.engine.steps import Floats
from analysis.plan.errors import CannotPlan
from analysis.plan.evidence.hold_out import HeldOut, fit_stages, hold_out
from analysis.plan.evidence.measured import MeasuredStage, measured_stages
from analysis.plan.evidence.scalability import SafeLoad, Scalability, safe_load, scalability
from analysis.plan.fleet.day import DayPlan, plan_day, read_day
from analysis.plan.fleet.replicas import BEYOND, Fleet, Measured, Peak, Replicas, fewest_replicas
from analysis.plan.money.bill import Bill, bill, read_prices
from analysis.plan.settings import Balancer, PlanSettings
from analysis.plan.simulation.outcome import FIGURES
from analysis.plan.simulation.predict import pooled
from analysis.plan.simulation.replica import Lengths
from analysis.run.load import RunData
from analysis.units import format_seconds, format_share, significant
from analysis.verdict.stages import StageSummary
from analysis.verdict.summary import RunSummary, without_infinities
from records.load import Load, Rate, Users
from records.run import READY, STARTED
from records.slo import Objective
from records.stage import SECOND

SCHEMA_VERSION = 1
DRAWN_LENGTHS = 4096
START_UP = 60.0  # seconds until a new replica serves, where no run shows it


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that `enginebench plan` says of one engine."""

    label: str
    runs: tuple[str, ...]
    stages: tuple[str, ...]
    fitted: FittedModel
    held_out: tuple[HeldOut, ...]
    scalability: Scalability | None
    safe: SafeLoad | None
    load: Load  # with headroom
    objectives: tuple[Objective, ...]
    measured: Measured
    replicas: Replicas
    spares: int
    peak_seconds: float
    bill: Bill | None  # None without a price
    day: DayPlan | None
    peak: Peak
    balancer: Balancer
    gpu_hours: tuple[int, float | None]  # GPUs of a replica, and the price of an hour of one
    joules_per_token: float | None  # measured, at the stage with the highest throughput

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


def objective_text(objective: Objective) -> str:
    """`TTFT p99 ≤ 1 s`"""
    if objective.column is None:
        return f"failures ≤ {format_share(1 - objective.q)}"
    return f"{objective.metric.upper()} p{100 * objective.q:g} ≤ {format_seconds(objective.limit)}"


def make_plan(runs: Sequence[RunData], summaries: Sequence[RunSummary], settings: PlanSettings) -> Plan:
    """A plan for one engine from its runs. Raises `CannotPlan`."""
    day = read_day(settings.peak) if isinstance(settings.peak, Path) else None
    asked = Rate(float(day.rates.max())) if day is not None else settings.peak
    assert isinstance(asked, Users | Rate)
    stages = measured_stages(runs)
    declared = _declared_slots(runs)
    fitted = fit_stages(stages, declared)
    worst = fitted.fit.worst
    if fitted.fit.drifted and worst is not None and not settings.allow_drift:
        raise CannotPlan(
            f"the machine drifted while it was measured: steps took {worst.ratio:.2f} times the fitted cost for 10 s "
            f"at {worst.stage}. Measure again on a quiet machine, with the loads interleaved, or accept it with "
            "--allow-drift."
        )
    load = with_headroom(asked, settings.headroom, settings.arrivals)
    peak = Peak(load, asked_lengths(pooled(stages), settings), settings.peak_seconds, think=_think(stages))
    measured = largest_loads(stages)
    fleet = Fleet(fitted.model, peak, settings.slo, settings.balancer, settings.seed)
    found = fewest_replicas(fleet, measured)
    prices = read_prices(settings.prices)
    hourly = settings.price if settings.price is not None else prices.gpu(settings.gpu) if settings.gpu else None
    gpus = settings.gpus if settings.price is None else 1
    every = [stage for summary in summaries for stage in summary.stages]
    return Plan(
        label=summaries[0].label,
        runs=tuple(summary.run_id for summary in summaries),
        stages=tuple(stage.name for stage in stages),
        fitted=fitted,
        held_out=hold_out(stages, declared),
        scalability=scalability(every),
        safe=safe_load([stage for stage in every if stage.load_unit == load.unit]),
        load=load,
        objectives=settings.slo,
        measured=measured,
        replicas=found,
        spares=settings.spares,
        peak_seconds=settings.peak_seconds,
        bill=None
        if hourly is None
        else bill(found.count + settings.spares, gpus, hourly, found.chosen, fitted.model, peak.lengths, prices),
        day=None if day is None else plan_day(fleet, measured, day, _start_up(runs, settings), found.count),
        peak=peak,
        balancer=settings.balancer,
        gpu_hours=(gpus, hourly),
        joules_per_token=_energy(every),
    )


def _start_up(runs: Sequence[RunData], settings: PlanSettings) -> float:
    """The longest that a server of these runs took from its start until it was ready."""
    if settings.start_up is not None:
        return settings.start_up
    told = [{event.what: event.t for event in run.meta.events} for run in runs]
    took = [(t[READY] - t[STARTED]) / SECOND for t in told if READY in t and STARTED in t]
    return max(took, default=START_UP)


def _energy(stages: Sequence[StageSummary]) -> float | None:
    told = [(stage.throughput.value or 0.0, stage.energy_per_token) for stage in stages]
    known = [(throughput, joules) for throughput, joules in told if joules is not None]
    return max(known)[1] if known else None


def with_headroom(load: Load, headroom: float, arrivals: str) -> Load:
    if isinstance(load, Users):
        return Users(int(np.ceil(load.count * (1 + headroom))))
    return replace(load, per_second=load.per_second * (1 + headroom), arrivals=arrivals)


def largest_loads(stages: Sequence[MeasuredStage]) -> Measured:
    """A rate of arrivals counts as its answers a second; users of an open loop are the requests in flight."""
    users = max((stage.load.value for stage in stages if isinstance(stage.load, Users)), default=0.0)
    running = max((steps.occupied.max(initial=0.0) for stage in stages for steps in stage.steps), default=0.0)
    return Measured(users or float(running), max(stage.figures["rate"] for stage in stages))


def _declared_slots(runs: Sequence[RunData]) -> int | None:
    """What the engine says of itself, where all runs agree."""
    told = {(run.meta.engine or {}).get("max_concurrency") for run in runs}
    only = told.pop() if len(told) == 1 else None
    return only if isinstance(only, int) and only > 0 else None


def _think(stages: Sequence[MeasuredStage]) -> Floats:
    parts = [stage.think for stage in stages if len(stage.think)]
    return np.concatenate(parts) if parts else np.zeros(0)


def asked_lengths(measured: Lengths, settings: PlanSettings) -> Lengths:
    """The measured lengths, or those that were asked for. Raises `CannotPlan` beyond what was measured."""
    rng = np.random.default_rng(settings.seed)
    lengths = measured
    for name, wanted in (("prompt", settings.prompt_tokens), ("output", settings.output_tokens)):
        if wanted is None:
            continue
        seen = getattr(measured, name)
        least, most = seen.min(), seen.max()
        if wanted[0] < least or wanted[1] > most:
            span = f"{wanted[0]}-{wanted[1]}"
            raise CannotPlan(
                f"{name} lengths of {span} tokens were not measured ({least:.0f}-{most:.0f} were): make a run with "
                f"--{name}-tokens uniform:{span} and plan from it too."
            )
        drawn = rng.integers(wanted[0], wanted[1] + 1, DRAWN_LENGTHS).astype(np.float64)
        lengths = lengths if len(lengths) == DRAWN_LENGTHS else lengths.drawn(DRAWN_LENGTHS, rng)
        lengths = Lengths(drawn, drawn, lengths.output) if name == "prompt" else replace(lengths, output=drawn)
    return lengths


def as_document(plan: Plan) -> dict[str, Any]:
    """What `--json` prints: seconds, tokens and requests per second, shares."""
    model = asdict(plan.fitted.model)
    document = {
        "schema": SCHEMA_VERSION,
        "answer": plan.sentence,
        "label": plan.label,
        "runs": plan.runs,
        "stages": plan.stages,
        "peak": asdict(plan.load) | {"seconds": plan.peak_seconds},
        "objectives": [str(one) for one in plan.objectives],
        "replicas": asdict(plan.replicas),
        "spares": plan.spares,
        "bill": None if plan.bill is None else asdict(plan.bill),
        "day": None if plan.day is None else asdict(plan.day),
        "energy": {"joules_per_token": plan.joules_per_token, "kilowatts": plan.kilowatts},
        "next_run": plan.next_run,
        "beyond_measured": BEYOND,
        "model": model | {"undisturbed": asdict(plan.fitted.fit.undisturbed)},
        "fit": {
            "steps": plan.fitted.fit.steps,
            "explained": plan.fitted.fit.explained,
            "standard_errors": plan.fitted.fit.standard_errors,
            "ten_seconds": [asdict(one) for one in plan.fitted.fit.ratios],
            "warnings": plan.fitted.warnings,
        },
        "held_out": [
            {
                "stage": one.stage,
                "measured": one.measured,
                "predicted": {figure: asdict(one.predicted[figure]) for figure in FIGURES},
                "errors": one.errors,
            }
            for one in plan.held_out
        ],
        "scalability": None if plan.scalability is None else asdict(plan.scalability),
        "safe_load": None if plan.safe is None else asdict(plan.safe),
    }
    finite: dict[str, Any] = without_infinities(document)
    return finite
