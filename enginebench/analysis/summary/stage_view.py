"""The view of one stage, from its records: every declared number over the steady window, with its interval.

Each class of a mix has its own view, and so does each turn of conversations: a longer history may raise TTFT.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

import numpy as np
import numpy.typing as npt
import polars as pl

from enginebench.analysis.data.run_data import RunData, mean_of
from enginebench.analysis.data.windows import Window
from enginebench.analysis.summary.distributions import curves, distribution_of, distributions
from enginebench.analysis.summary.objectives import attainment, judge
from enginebench.analysis.summary.quantities import StageData, counts_of, failures_of, quantities_of
from enginebench.records.load import Rate
from enginebench.records.metrics import BY_NAME, ICL, IN_FLIGHT, THROUGHPUT, TPOT, TTFT, TTFT_SINCE_DUE
from enginebench.records.rules import is_failure
from enginebench.records.slo import Objective, RunObjectives
from enginebench.records.stage import SECOND
from enginebench.records.telemetry import GAUGES, LOAD_GENERATOR_GAUGES
from enginebench.records.view import ClassView, Level, StageView, TurnView

MIN_REQUESTS = 6  # per turn, for the interval of its median


def view_of(stage: StageData, objectives: tuple[Objective, ...]) -> StageView:
    """Return the view without findings.

    Raises `UserMistake` if an objective cannot be judged by what was measured.
    """
    run, window, scheduled = stage.run, stage.window, stage.scheduled
    return StageView(
        index=window.key.index,
        label=window.key.label,
        load=window.load.value,
        load_unit=window.load.unit,
        is_open=isinstance(window.load, Rate),
        varies=isinstance(window.load, Rate) and window.load.varies,
        profile=window.load.played(window.stage.plan.seconds or inf) if isinstance(window.load, Rate) else (),
        named=window.stage.plan.name is not None,
        start=window.start / SECOND,
        end=window.end / SECOND,
        complete=window.complete,
        outcomes=dict(sorted(scheduled["outcome"].value_counts().iter_rows())),
        failures=failures_of(stage),
        counts=counts_of(stage),
        metrics={**stage.metrics, ICL.name: stage.flows.gaps[window.key.index]},
        quantities=quantities_of(stage),
        gauges=_gauges(run, window),
        judgements=judge(scheduled, objectives),
        attained=attainment(scheduled, RunObjectives(objectives)),
        curves=curves(stage.ok),
        series=_series(stage),
        classes=classes_of(scheduled, RunObjectives.from_workload(run.meta.workload).by_class),
        turns=turns_of(scheduled),
    )


def _gauges(run: RunData, window: Window) -> dict[str, Level]:
    tenths = window.edges(10)
    gauges = {}
    for name in GAUGES:
        level = run.telemetry.level(name, window.start, window.end)
        if level is not None:
            first = run.telemetry.level(name, int(tenths[0]), int(tenths[1]))
            last = run.telemetry.level(name, int(tenths[-2]), int(tenths[-1]))
            ends = (None, None) if first is None or last is None else (first.mean, last.mean)
            gauges[name] = Level(level.mean, level.peak, *ends)
    for name in LOAD_GENERATOR_GAUGES:
        level = run.telemetry.worst_process(name, window.start, window.end)
        if level is not None:
            gauges[name] = level
    return gauges


def _series(stage: StageData) -> dict[str, tuple[float | None, ...]]:
    """Return means over equal parts of the window, which show whether it was steady."""
    edges = stage.window.parts
    seconds = np.diff(edges) / SECOND
    part = np.clip(np.searchsorted(edges, stage.ok["t_sched"].to_numpy(), side="right") - 1, 0, len(seconds) - 1)
    ttft = TTFT_SINCE_DUE if isinstance(stage.window.load, Rate) else TTFT
    return {
        THROUGHPUT: tuple((stage.flows.tokens(edges) / seconds).tolist()),
        IN_FLIGHT: tuple(stage.flows.in_flight.averages(edges).tolist()),
        ttft: _means_by_part(stage.ok[ttft], part, len(seconds)),
        TPOT: _means_by_part(stage.ok[TPOT], part, len(seconds)),
    }


def _means_by_part(values: pl.Series, part: npt.NDArray[np.intp], parts: int) -> tuple[float | None, ...]:
    """Average the known values in their order: the last digits of multithreaded sums vary."""
    present = values.is_not_null().to_numpy()
    counts = np.bincount(part[present], minlength=parts)
    sums = np.bincount(part[present], values.drop_nulls().to_numpy(), minlength=parts)
    return tuple(float(total / count) if count else None for total, count in zip(sums, counts, strict=True))


def classes_of(scheduled: pl.DataFrame, objectives: Mapping[str, tuple[Objective, ...]]) -> tuple[ClassView, ...]:
    """Return the views of classes; none if requests have no class. `objectives`, by class, are judged even if a class
    has no requests, because the server may have answered none.

    Raises `UserMistake` if an objective cannot be judged by what was measured.
    """
    classes = []
    limited = [name for name, own in objectives.items() if own]
    for name in sorted({*scheduled["request_class"].drop_nulls().unique(), *limited}):
        requests = scheduled.filter(pl.col("request_class") == name)
        own = objectives.get(name, ())
        failed = sum(is_failure(outcome) for outcome in requests["outcome"])
        classes.append(ClassView(name, len(requests), failed, distributions(requests, own), judge(requests, own)))
    return tuple(classes)


def turns_of(scheduled: pl.DataFrame) -> tuple[TurnView, ...]:
    """Return the turns with enough requests; nothing without conversations of several turns."""
    if scheduled["turn"].drop_nulls().n_unique() < 2:
        return ()
    turns = []
    for (turn,), requests in scheduled.drop_nulls("turn").group_by("turn", maintain_order=True):
        if len(requests) >= MIN_REQUESTS:
            ttft = distribution_of(requests, BY_NAME[TTFT_SINCE_DUE]).percentile("p50")
            turns.append(TurnView(int(str(turn)) + 1, len(requests), mean_of(requests["prompt_tokens"]), ttft))
    return tuple(sorted(turns, key=lambda view: view.turn))
