"""The effect of a burst, an outage or a replaced server on users, and when it was over.

Latency is back at its usual level when at most 3 of the next 20 requests exceed the 95th percentile of the requests
before the disruption; by chance alone, this fails in 1.6 % of cases.
The SLO is met again when the next 20 requests, and all later ones, meet it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle

import numpy as np
import polars as pl

from enginebench.analysis.arrays import Flags, Integers
from enginebench.analysis.data.formulas import expression
from enginebench.analysis.data.run_data import RunData, with_metrics
from enginebench.analysis.data.windows import Window, windows_of
from enginebench.records.formula import Field
from enginebench.records.load import Burst, Rate, Segment
from enginebench.records.metrics import TTFT_SINCE_DUE
from enginebench.records.rules import attempted, percentile
from enginebench.records.slo import Objective
from enginebench.records.stage import SECOND, Nanoseconds, Stage

USUAL = 0.95
IN_A_ROW, OUTSIDE = 20, 3
ROUNDING = 1e-9  # 1 − 0.9 is a little less than 0.1
MAX_POINTS = 1500  # on the time line


@dataclass(frozen=True, slots=True)
class Period:
    """Requests that were due before, during or after a disruption. `within` is the share that met the SLO."""

    start: float
    end: float
    requests: int
    failed: int
    within: float | None
    ttft_p50: float | None
    ttft_p95: float | None
    ttft_longest: float | None
    most_in_flight: int


@dataclass(frozen=True, slots=True)
class Disruption:
    """A disruption of the load. Instants are seconds since the load began. `command` disturbed the server; it is empty
    for a burst.

    `peak` is the longest TTFT since its start. `recovered` counts seconds from its end until TTFT was back at its usual
    level (see above), `slo_recovered` until the SLO was met again; `None` if that did not happen.
    """

    command: str
    start: float
    end: float
    peak: float | None
    failed: int
    recovered: float | None
    judged: bool
    absorbed: bool
    slo_recovered: float | None
    periods: tuple[Period, ...]  # before, during, and after in two parts if the server recovered
    first_tokens: tuple[tuple[float, float], ...]  # (due, TTFT) of each request; of the slowest in long runs

    @property
    def over_after(self) -> float | None:
        """Return the recovery by the SLO or, without an SLO, by the usual level."""
        return self.slo_recovered if self.judged else self.recovered


@dataclass(frozen=True, slots=True)
class _Cause:
    start: Nanoseconds
    end: Nanoseconds
    command: str = ""


def disruptions_of(run: RunData, objectives: Sequence[Objective]) -> tuple[Disruption, ...]:
    """Return the disruptions with enough requests before them to know the usual level."""
    disruptions: list[Disruption] = []
    for window in windows_of(run):
        events = [event for event in run.meta.events if window.start < event.t < window.end]
        causes = [*(_Cause(event.t, event.t, event.what) for event in events), *_bursts(window)]
        if causes:
            causes.sort(key=lambda cause: cause.start)
            requests = window.scheduled(run.requests)
            disruptions += _followed(run, requests, causes, window.start, window.end, objectives)
    if run.meta.search is None and (peaks := list(_peaks(run.meta.stages))):
        start = run.meta.stages[0].steady_start or 0
        disruptions += _followed(run, with_metrics(run.requests), peaks, start, run.last, objectives)
    return tuple(disruptions)


def _followed(
    run: RunData,
    requests: pl.DataFrame,
    causes: Sequence[_Cause],
    start: Nanoseconds,
    end: Nanoseconds,
    objectives: Sequence[Objective],
) -> Iterator[Disruption]:
    """Follow each disruption until the next one begins."""
    ends = [*(following.start for following in causes[1:]), end]
    for cause, until in zip(causes, ends, strict=True):
        effect = _effect(run, requests, cause, (start, causes[0].start), until, objectives)
        if effect is not None:
            yield effect


def _bursts(window: Window) -> Iterator[_Cause]:
    """Yield the bursts of a profile inside the window; if it has none, its segments of the highest rate."""
    load = window.load
    if not isinstance(load, Rate) or any(isinstance(part, Segment) and part.seconds is None for part in load.profile):
        return
    has_bursts = any(isinstance(part, Burst) for part in load.profile)
    peak = max((max(part.first, part.last) for part in load.profile if isinstance(part, Segment)), default=0.0)
    at = float(window.stage.start)
    for part in cycle(load.profile):
        start = at
        at += part.seconds * SECOND if isinstance(part, Segment) and part.seconds is not None else 0
        if at >= window.end:
            return
        if isinstance(part, Burst) and start > window.start:
            yield _Cause(round(start), round(start) + 1)
        elif isinstance(part, Segment) and not has_bursts and peak in {part.first, part.last} and start > window.start:
            yield _Cause(round(start), round(at))


def _peaks(stages: Sequence[Stage]) -> Iterator[_Cause]:
    """Yield stages of a heavier load between two stages of the same lighter load: a burst of one or more stages. Brief
    stages, which locate a load, do not count."""
    for before, stage, after in zip(stages, stages[1:], stages[2:], strict=False):
        if before.plan.brief or stage.plan.brief:
            continue
        if before.load == after.load and stage.load.value > before.load.value and stage.end is not None:
            yield _Cause(stage.start, stage.end)


def _effect(
    run: RunData,
    requests: pl.DataFrame,
    cause: _Cause,
    before: tuple[Nanoseconds, Nanoseconds],
    until: Nanoseconds,
    objectives: Sequence[Objective],
) -> Disruption | None:
    """Return `None` if fewer than 20 requests ended before the disruption, or more than 5 % of them failed."""
    latency = expression(attempted(Field(TTFT_SINCE_DUE)))  # null if the request was cut off or unsent
    met = pl.min_horizontal(*(expression(objective.within) for objective in objectives)) if objectives else pl.lit(None)
    rows = requests.select("t_sched", "t_send", "t_first", "t_end", latency=latency, met=met).drop_nulls("latency")
    usual = np.sort(rows.filter(pl.col("t_end") < before[1])["latency"].to_numpy())
    level = percentile(usual, USUAL) if len(usual) >= IN_A_ROW else math.inf
    if math.isinf(level):
        return None
    after = rows.filter(pl.col("t_sched").is_between(cause.end, until, closed="left"))
    recovered = _recovery(after["latency"].to_numpy() > level, OUTSIDE / IN_A_ROW, 1.0)
    allowed = [1 - objective.q for objective in objectives]
    outside = after["met"].fill_null(0.0).to_numpy() < 1
    slo_recovered = _recovery(outside, min(allowed), min(allowed)) if allowed else None
    due = after["t_sched"].to_numpy()
    place = slo_recovered if objectives else recovered
    again = cause.end if not place else int(due[place])
    spans = [(before[0], before[1]), (cause.start, max(cause.end, cause.start + 1)), (cause.end, again), (again, until)]
    began = run.meta.stages[0].start
    periods = tuple(_period(rows, span, began) for span in spans if span[1] > span[0])
    shares = [share for period in periods[1:] if (share := period.within) is not None]
    failed = len(rows.filter(pl.col("latency").is_infinite() & pl.col("t_end").is_between(cause.start, until)))
    during = rows.filter(pl.col("t_sched").is_between(cause.start, cause.end))["latency"].to_numpy()
    if objectives:
        absorbed = bool(shares) and all(share >= max(o.q for o in objectives) for share in shares)
    else:
        stayed = not len(during) or float((during > level).mean()) <= OUTSIDE / IN_A_ROW
        absorbed = recovered == 0 and not failed and stayed
    felt = rows.filter((pl.col("t_sched") < until) & (pl.col("t_first") >= cause.start) & pl.col("latency").is_finite())
    return Disruption(
        command=cause.command,
        start=(cause.start - began) / SECOND,
        end=(cause.end - began) / SECOND,
        peak=felt["latency"].max(),  # type: ignore[arg-type]
        failed=failed,
        recovered=_since(due, recovered, cause.end),
        judged=bool(objectives),
        absorbed=absorbed,
        slo_recovered=_since(due, slo_recovered, cause.end),
        periods=periods,
        first_tokens=_points(rows, began),
    )


def _period(rows: pl.DataFrame, span: tuple[Nanoseconds, Nanoseconds], began: Nanoseconds) -> Period:
    due = rows.filter(pl.col("t_sched").is_between(*span, closed="left"))
    ttft = np.sort(due["latency"].to_numpy())
    quantiles = [percentile(ttft, q) if len(ttft) else None for q in (0.5, 0.95)]
    met = due["met"].drop_nulls()
    return Period(
        start=(span[0] - began) / SECOND,
        end=(span[1] - began) / SECOND,
        requests=len(due),
        failed=int(due["latency"].is_infinite().sum()),
        within=float(met.mean()) if len(met) else None,  # type: ignore[arg-type]
        ttft_p50=quantiles[0],
        ttft_p95=quantiles[1],
        ttft_longest=float(ttft[-1]) if len(ttft) else None,
        most_in_flight=_most_in_flight(rows, span),
    )


def _most_in_flight(rows: pl.DataFrame, span: tuple[Nanoseconds, Nanoseconds]) -> int:
    """Return the largest number of requests that were due and not ended at the same time."""
    there = rows.filter((pl.col("t_sched") < span[1]) & (pl.col("t_end") > span[0]))
    if there.is_empty():
        return 0
    starts, ends = np.sort(there["t_sched"].to_numpy()), np.sort(there["t_end"].to_numpy())
    instants = np.clip(starts, span[0], span[1])
    counts = np.searchsorted(starts, instants, side="right") - np.searchsorted(ends, instants, side="right")
    return int(counts.max())


def _recovery(outside: Flags, allowed: float, allowed_later: float) -> int | None:
    """Return the first index that is inside and from which at most a share `allowed` of the next 20, and at most
    `allowed_later` of all that follow, is outside."""
    if len(outside) < IN_A_ROW:
        return None
    sums = np.concatenate(([0], np.cumsum(outside)))
    places = np.arange(len(outside) - IN_A_ROW + 1)
    next_ones, rest = sums[IN_A_ROW:] - sums[:-IN_A_ROW], sums[-1] - sums[places]
    few = (next_ones <= allowed * IN_A_ROW + ROUNDING) & (rest <= allowed_later * (len(outside) - places) + ROUNDING)
    runs = np.flatnonzero(few & ~outside[: len(few)])
    return int(runs[0]) if len(runs) else None


def _since(due: Integers, place: int | None, end: Nanoseconds) -> float | None:
    """Return the seconds from the end to the request at `place`; 0 if the first request has recovered already."""
    return None if place is None else 0.0 if place == 0 else float(due[place] - end) / SECOND


def _points(rows: pl.DataFrame, began: Nanoseconds) -> tuple[tuple[float, float], ...]:
    """Return the requests or, in a long run, the slowest of each of `MAX_POINTS` groups."""
    finite = rows.filter(pl.col("latency").is_finite())
    due, ttft = (finite["t_sched"].to_numpy() - began) / SECOND, finite["latency"].to_numpy()
    step = max(math.ceil(len(due) / MAX_POINTS), 1)
    slowest = [int(place + ttft[place : place + step].argmax()) for place in range(0, len(due), step)]
    return tuple((float(due[place]), float(ttft[place])) for place in slowest)
