"""What was measured, as the plan reads it: the stages of runs from their records, with the engine's steps; and from
their summaries, which nothing else in this room reads, the throughput at each load, the energy of a token, and the
capacity within the objectives.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from enginebench.analysis.arrays import Floats
from enginebench.analysis.compare.capacity import SloCapacity, slo_capacity
from enginebench.analysis.data.chunks import chunks_within
from enginebench.analysis.data.load import RunData, with_metrics
from enginebench.analysis.data.windows import Window, windows_of
from enginebench.analysis.plan.requests import Lengths, Requests, figures, latencies_of
from enginebench.analysis.plan.scalability import LoadPoint
from enginebench.analysis.plan.settings import CannotPlan
from enginebench.analysis.plan.steps import Steps, find_steps
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.formatting import format_share
from enginebench.records.load import Load, Users
from enginebench.records.rules import FAILURES_BORNE, UNJUDGED
from enginebench.records.slo import FAILURES, Objective
from enginebench.records.stage import SECOND
from enginebench.records.view import StageView

BEYOND = 1.5  # times the largest measured load of a replica, up to which predictions are made


@dataclass(frozen=True, slots=True)
class MeasuredStage:
    """One stage of one run. Seconds since the run's start."""

    name: str
    label: str  # what stages of one kind have in common
    load: Load
    begin: float
    start: float  # of the steady window
    end: float
    requests: Requests  # of the whole stage, those that ended well
    starts: Floats  # when each user first asked, after `begin`
    think: Floats  # from a user's answer to the next request
    failed: float  # share
    steps: tuple[Steps, ...]

    @property
    def figures(self) -> dict[str, float]:
        return figures(self.requests, self.start, self.end)

    @property
    def lengths(self) -> Lengths:
        """Of the requests due in the window."""
        return self.requests.between(self.start, self.end).lengths


def measured_stages(runs: Sequence[RunData]) -> list[MeasuredStage]:
    """The stages of all runs that can be planned from. Raises `CannotPlan` where there is none."""
    stages = [_stage(run, window, len(runs) > 1) for run in runs for window in windows_of(run) if _streamed(run)]
    usable = [stage for stage in stages if stage.failed <= FAILURES_BORNE and len(stage.lengths)]
    if not usable:
        raise CannotPlan(
            "these runs have no stage to plan from: it takes streamed answers with token counts, of which at most "
            f"{format_share(FAILURES_BORNE)} failed."
        )
    return usable


def _streamed(run: RunData) -> bool:
    return run.requests["t_first"].null_count() < len(run.requests)


def _stage(run: RunData, window: Window, several: bool) -> MeasuredStage:
    stage = window.stage
    stop = stage.end if stage.end is not None else window.end
    due = with_metrics(run.requests.filter(pl.col("t_sched").is_between(stage.start, stop, closed="left")))
    complete = pl.all_horizontal(pl.col("t_first", "e2e_user", "output_tokens").is_not_null())
    ok = due.filter((pl.col("outcome") == "ok") & complete)
    sched = ok["t_sched"].to_numpy() / SECOND
    prompt = ok["prompt_tokens"].fill_null(0).to_numpy().astype(np.float64)
    cached = ok["cached_tokens"].fill_null(0).to_numpy().astype(np.float64)
    lengths = Lengths(prompt - cached, prompt, ok["output_tokens"].to_numpy().astype(np.float64))
    requests = Requests(
        sched,
        ok["t_first"].to_numpy() / SECOND,
        sched + ok["e2e_user"].to_numpy(),
        lengths,
        latencies_of(ok),
    )
    closed = isinstance(window.load, Users)
    ended = window.scheduled(due).filter(~pl.col("outcome").is_in(UNJUDGED))
    return MeasuredStage(
        name=f"{window.key.label} of {run.meta.run_id}" if several else window.key.label,
        label=window.stage.plan.label,
        load=window.load,
        begin=stage.start / SECOND,
        start=window.start / SECOND,
        end=window.end / SECOND,
        requests=requests,
        starts=_starts(due, stage.start, window.start) if closed else np.zeros(0),
        think=_think(ok) if closed else np.zeros(0),
        failed=float((ended["outcome"] != "ok").sum()) / len(ended) if len(ended) else math.inf,
        steps=tuple(
            steps for piece in chunks_within(run.table, window.start, window.end) if (steps := find_steps(piece))
        ),
    )


def _starts(due: pl.DataFrame, begin: int, steady: int) -> Floats:
    """Of the users who stay: those of a larger load before may ask once more after `begin`, and leave."""
    asked = due.group_by("user").agg(first=pl.col("t_sched").min(), last=pl.col("t_sched").max())
    first = asked.filter(pl.col("last") >= steady)["first"].to_numpy()
    return np.sort((first - begin) / SECOND)


def _think(ok: pl.DataFrame) -> Floats:
    """Pauses from the last token of an answer to the same user's next request."""
    last = pl.col("t_sched") + pl.col("e2e_user") * SECOND
    pause = (pl.col("t_sched").shift(-1) - last).over("user", order_by="t_sched") / SECOND
    pauses: Floats = ok.select(pause=pause)["pause"].drop_nulls().to_numpy()
    return np.maximum(pauses, 0.0)


@dataclass(frozen=True, slots=True)
class SupportedLoads:
    """The largest measured loads of one replica, and up to how many times as much the records support."""

    users: float
    rate: float  # requests per second
    beyond: float = BEYOND

    def measured(self, load: Load) -> float:
        return self.users if isinstance(load, Users) else self.rate

    def largest(self, load: Load) -> float:
        return self.beyond * self.measured(load)

    def fewest(self, load: Load) -> int:
        """Replicas below which each would bear more than the records support."""
        return max(1, math.ceil(round(load.value / max(self.largest(load), 1e-9), 9)))


def supported_loads(
    stages: Sequence[MeasuredStage], limit_known: bool, objectives: Sequence[Objective] = ()
) -> SupportedLoads:
    """A rate of arrivals counts as its answers a second; users of an open loop are the requests in flight.

    `limit_known`: of the requests that run at a time. Nothing beyond the measured loads is supported where it is not
    known, or where an objective limits failures, which are not simulated. Raises `CannotPlan` where every load failed
    more often than that.
    """
    limits = [1 - objective.q for objective in objectives if objective.metric == FAILURES]
    borne = [stage for stage in stages if all(stage.failed <= limit for limit in limits)]
    if not borne:
        least = min(stage.failed for stage in stages)
        raise CannotPlan(
            f"at every measured load more than {format_share(min(limits))} of the requests failed, "
            f"{format_share(least)} at least: failures are not simulated, so measure loads at which fewer fail."
        )
    users = max((stage.load.value for stage in borne if isinstance(stage.load, Users)), default=0.0)
    running = max((steps.occupied.max(initial=0.0) for stage in borne for steps in stage.steps), default=0.0)
    rate = max(stage.figures["rate"] for stage in borne)
    return SupportedLoads(users or float(running), rate, BEYOND if limit_known and not limits else 1.0)


def declared_slots(runs: Sequence[RunData]) -> int | None:
    """What the engine says of itself, where all runs agree."""
    declared = {(run.meta.engine or {}).get("max_concurrency") for run in runs}
    only = declared.pop() if len(declared) == 1 else None
    return only if isinstance(only, int) and only > 0 else None


def load_points(stages: Iterable[StageView]) -> list[LoadPoint]:
    """The throughput of each stage, and with how many requests in flight."""
    return [LoadPoint(stage.label, stage.value("concurrency") or 0.0, stage.estimate("throughput")) for stage in stages]


def measured_capacity(summaries: Sequence[RunSummary], load: Load) -> SloCapacity | None:
    """Of one replica, in the unit of `load`; `None` where it was measured in another, or nothing was judged."""
    capacity = slo_capacity(summaries)
    return capacity if capacity is not None and capacity.unit == load.unit else None


def energy_per_token(summaries: Iterable[RunSummary]) -> float | None:
    """Joules, at the stage with the highest throughput."""
    stages = [stage for summary in summaries for stage in summary.stages]
    known = [
        (stage.value("throughput") or 0.0, joules) for stage in stages if (joules := stage.value("energy_per_token"))
    ]
    return max(known)[1] if known else None
