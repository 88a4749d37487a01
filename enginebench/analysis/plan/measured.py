"""The stages of runs as the plan reads them from the records, with the engine's steps, and the supported loads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from enginebench.analysis.arrays import Floats
from enginebench.analysis.data.chunks import chunks_within
from enginebench.analysis.data.formulas import expression
from enginebench.analysis.data.run_data import RunData, with_metrics
from enginebench.analysis.data.windows import Window, windows_of
from enginebench.analysis.plan.not_planned import CannotPlan, NotPlanned
from enginebench.analysis.plan.requests import Lengths, Requests, figures, latencies_of
from enginebench.analysis.plan.steps import Steps, find_steps
from enginebench.records.load import Load, Users
from enginebench.records.metrics import E2E_SINCE_DUE, OUTPUT_TOKENS, PROMPT_TOKENS
from enginebench.records.rules import MAX_FAILURE_SHARE
from enginebench.records.slo import FAILURES, FAULTS, Objective
from enginebench.records.stage import SECOND

BEYOND = 1.5  # predictions are made up to this multiple of a replica's largest measured load


@dataclass(frozen=True, slots=True)
class MeasuredStage:
    """A stage of a run. Instants are seconds since the run's start."""

    name: str
    label: str  # common to stages of one kind
    load: Load
    begin: float
    start: float  # of the steady window
    end: float
    requests: Requests  # successful ones of the whole stage
    starts: Floats  # when each user first asked, after `begin`
    think: Floats  # from a user's answer to the next request
    faults: Mapping[str, float]  # share of the requests with each
    answered: float  # answers per second in the steady window, whenever they were due
    steps: tuple[Steps, ...]

    @property
    def failed(self) -> float:
        return self.faults[FAILURES]

    @property
    def figures(self) -> dict[str, float]:
        return figures(self.requests, self.start, self.end)

    @property
    def lengths(self) -> Lengths:
        """Return the lengths of the requests due in the window."""
        return self.requests.between(self.start, self.end).lengths


def measured_stages(runs: Sequence[RunData]) -> list[MeasuredStage]:
    """Read the stages of all runs that can be planned from. Raises `CannotPlan` if there is none."""
    streamed = [run for run in runs if run.requests["t_first"].null_count() < len(run.requests)]
    stages = [_stage(run, window, len(runs) > 1) for run in streamed for window in windows_of(run)]
    counted = [stage for stage in stages if len(stage.lengths)]
    usable = [stage for stage in counted if stage.failed <= MAX_FAILURE_SHARE]
    if not usable:
        raise CannotPlan(NotPlanned.FAILURES if counted else NotPlanned.FEW_STEPS)
    return usable


def _stage(run: RunData, window: Window, several: bool) -> MeasuredStage:
    stage = window.stage
    stop = stage.end if stage.end is not None else window.end
    due = with_metrics(run.requests.filter(pl.col("t_sched").is_between(stage.start, stop, closed="left")))
    complete = pl.all_horizontal(pl.col("t_first", E2E_SINCE_DUE, OUTPUT_TOKENS).is_not_null())
    ok = due.filter((pl.col("outcome") == "ok") & complete)
    sched = ok["t_sched"].to_numpy() / SECOND
    prompt = ok[PROMPT_TOKENS].fill_null(0).to_numpy().astype(np.float64)
    cached = ok["cached_tokens"].fill_null(0).to_numpy().astype(np.float64)
    lengths = Lengths(prompt - cached, ok[OUTPUT_TOKENS].to_numpy().astype(np.float64))
    requests = Requests(
        sched,
        ok["t_first"].to_numpy() / SECOND,
        sched + ok[E2E_SINCE_DUE].to_numpy(),
        lengths,
        latencies_of(ok),
    )
    answered = (pl.col("outcome") == "ok") & pl.col("t_last").is_between(window.start, window.end, closed="left")
    closed = isinstance(window.load, Users)
    return MeasuredStage(
        name=f"{window.key.label} of {run.meta.run_id}" if several else window.key.label,
        label=window.stage.plan.label,
        load=window.load,
        begin=stage.start / SECOND,
        start=window.start / SECOND,
        end=window.end / SECOND,
        requests=requests,
        starts=_starts(due, window) if closed else np.zeros(0),
        think=_think(due, complete) if closed else np.zeros(0),
        faults=_faults(window.scheduled(due)),
        answered=len(run.requests.filter(answered)) / (window.end - window.start) * SECOND,
        steps=tuple(
            steps for piece in chunks_within(run.table, window.start, window.end) if (steps := find_steps(piece))
        ),
    )


def _faults(scheduled: pl.DataFrame) -> dict[str, float]:
    """Return the share of the requests with each fault; +∞ if it is unknown for all of them."""
    absent = scheduled.select(**{name: expression(fault.absent) for name, fault in FAULTS.items()})
    known = {name: absent[name].drop_nulls() for name in FAULTS}
    return {name: float((flags == 0).sum()) / len(flags) if len(flags) else math.inf for name, flags in known.items()}


def _starts(due: pl.DataFrame, window: Window) -> Floats:
    """Return when each remaining user first asked. Users of an earlier, larger load may ask once more after the stage
    began. If the records do not name users, the first requests count as the users' first ones."""
    asked = due.group_by("user").agg(first=pl.col("t_sched").min(), last=pl.col("t_sched").max())
    first = np.sort(asked.filter(pl.col("last") >= window.start)["first"].to_numpy())
    if due["user"].null_count():
        first = np.sort(due["t_sched"].to_numpy())[: math.ceil(window.load.value)]
    return (first - window.stage.start) / SECOND


def _think(due: pl.DataFrame, complete: pl.Expr) -> Floats:
    """Return the pauses from the last token of an answer to the same user's next request, of any outcome. There are
    none if the records do not name users."""
    if due["user"].null_count():
        return np.zeros(0)
    last = pl.col("t_sched") + pl.col(E2E_SINCE_DUE) * SECOND
    pause = (pl.col("t_sched").shift(-1) - last).over("user", order_by="t_sched") / SECOND
    answered = (pl.col("outcome") == "ok") & complete
    pauses: Floats = (
        due.select(pause.alias("pause"), answered=answered).filter("answered")["pause"].drop_nulls().to_numpy()
    )
    return np.maximum(pauses, 0.0)


@dataclass(frozen=True, slots=True)
class SupportedLoads:
    """The largest measured loads of one replica, and the supported multiple of them."""

    users: float
    rate: float  # requests/s
    beyond: float = BEYOND

    def largest(self, load: Load) -> float:
        return self.beyond * (self.users if isinstance(load, Users) else self.rate)

    def fewest(self, load: Load) -> int:
        """Return the number of replicas below which each would get more than the records support."""
        return max(1, math.ceil(round(load.value / max(self.largest(load), 1e-9), 9)))


def supported_loads(
    stages: Sequence[MeasuredStage], limit_known: bool, objectives: Sequence[Objective] = ()
) -> SupportedLoads:
    """Return the supported loads. A rate of arrivals counts by its answers per second; users of an open loop are the
    requests in flight.

    Loads beyond the measured ones are supported only if the limit on running requests is known (`limit_known`) and no
    objective limits a fault, because faults are not simulated. Raises `CannotPlan` if too many requests failed at every
    load.
    """
    limits = [(objective.metric, 1 - objective.q) for objective in objectives if objective.fault is not None]
    usable = [stage for stage in stages if all(stage.faults[fault] <= limit for fault, limit in limits)]
    if not usable:
        raise CannotPlan(NotPlanned.FAILURES)
    users = max((stage.load.value for stage in usable if isinstance(stage.load, Users)), default=0.0)
    running = max((steps.occupied.max(initial=0.0) for stage in usable for steps in stage.steps), default=0.0)
    rate = max(stage.answered for stage in usable)
    return SupportedLoads(users or float(running), rate, BEYOND if limit_known and not limits else 1.0)


def declared_slots(runs: Sequence[RunData]) -> int | None:
    """Return the slots that the engine reports, if all runs agree."""
    declared = {(run.meta.engine or {}).get("max_concurrency") for run in runs}
    only = declared.pop() if len(declared) == 1 else None
    return only if isinstance(only, int) and only > 0 else None
