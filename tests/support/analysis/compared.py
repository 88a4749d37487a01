"""Runs with given numbers and without records, as input for comparisons and gates."""

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from enginebench.analysis.engine_runs import EngineRuns
from enginebench.analysis.summary.run_summary import FlowSeries, RunSummary
from enginebench.records.metrics import BY_NAME, PERCENTILES, REQUEST_METRICS
from enginebench.records.rules import SloAnswer, nearest_rank
from enginebench.records.slo import Objective
from enginebench.records.view import EMPTY, Distribution, Estimate, Judgement, Ordered, StageView

REQUESTS = 10_000


def view(load: float, numbers: Mapping[str, float | Estimate | None], **changes: Any) -> StageView:
    """Return a stage of `load` users. The keys of `numbers` are such as `throughput` and `ttft p95`."""
    quantities = {"failure_share": Estimate(0.0, n=REQUESTS)}
    metrics: dict[str, Distribution] = dict.fromkeys(BY_NAME, EMPTY)
    for key, number in numbers.items():
        name, _, percentile = key.partition(" ")
        estimate = number if isinstance(number, Estimate) else Estimate(number, n=REQUESTS)
        if not percentile:
            quantities[name] = estimate
            continue
        assert percentile in PERCENTILES
        known = metrics[name].percentiles
        metrics[name] = replace(EMPTY, n=REQUESTS, mean=estimate.value, percentiles={**known, percentile: estimate})
    metrics = {name: _with_values(known) if known.n else known for name, known in metrics.items()}
    for metric in REQUEST_METRICS:  # every request was sent when it was due
        if metric.since_due:
            metrics[metric.since_due] = metrics[metric.name]
    stage = StageView(
        index=round(load),
        label=f"{load:g} user{'s' * (load != 1)}",
        load=float(load),
        load_unit="users",
        start=0.0,
        end=60.0,
        outcomes={"ok": REQUESTS},
        metrics=metrics,
        quantities=quantities,
    )
    return replace(stage, **changes)


def _with_values(distribution: Distribution) -> Distribution:
    """Add values with these percentiles. Each value stands for the requests below it, the highest one also for those
    above it, which failed if a percentile is among failed requests."""
    known = sorted((PERCENTILES[name], each.value) for name, each in distribution.percentiles.items() if each.value)
    finite = [(nearest_rank(REQUESTS, q), value) for q, value in known if value < math.inf]
    if len(finite) == len(known):
        finite = [*finite[:-1], *((REQUESTS, value) for _, value in finite[-1:])]
    ranks = [0, *(rank for rank, _ in finite)]
    values = struct.pack(f"<{len(finite)}d", *(value for _, value in finite))
    ended = Ordered(values, struct.pack(f"<{len(finite)}I", *(b - a for a, b in pairwise(ranks))))
    return replace(distribution, ended=ended, failed=distribution.n - ranks[-1])


def run(label: str, stages: Sequence[StageView], repeat: int = 0, **changes: Any) -> RunSummary:
    summary = RunSummary(
        run_id=f"{label}-{repeat}",
        started_at="2026-11-21T10:00:00.000+00:00",
        scenario="concurrent",
        url="http://127.0.0.1:8000",
        model="smollm2-135m",
        workload={"prompt_set": f"set {repeat}"},
        engine={"name": label, "dtype": "bfloat16"},
        host={"cpu": "Test CPU"},
        versions={"enginebench": "0.1.0"},
        label=label,
        command=(),
        repeat=repeat,
        folder=Path("runs") / f"{label}-{repeat}",
        requests=REQUESTS,
        objectives=(),
        stages=tuple(stages),
        flow=FlowSeries(1.0, (), ()),
        findings=(),
    )
    return replace(summary, **changes)


def runs_of(label: str, load: float = 8, **values: Sequence[float | Estimate | None]) -> list[RunSummary]:
    """Return a run with one stage for each value; `ttft_p95=` sets the key `ttft p95`."""
    by_key = {_key(name): of_name for name, of_name in values.items()}
    count = len(next(iter(by_key.values())))
    numbers = [{key: of_key[k] for key, of_key in by_key.items()} for k in range(count)]
    return [run(label, [view(load, each)], k) for k, each in enumerate(numbers)]


def _key(name: str) -> str:
    metric, _, percentile = name.rpartition("_")
    return f"{metric} {percentile}" if percentile in PERCENTILES else name


def engine_of(label: str, load: float = 8, **values: Sequence[float | Estimate | None]) -> EngineRuns:
    return EngineRuns(label, tuple(runs_of(label, load, **values)))


def judged(objective: Objective, share: float, effective: float, answer: SloAnswer | None = None) -> Judgement:
    """Return the judgement of a share among `effective` requests."""
    from enginebench.analysis.stats.intervals import clopper_pearson
    from enginebench.records.rules import answer_of

    low, high = clopper_pearson(share, effective)
    estimate = Estimate(share, low, high, round(effective), effective=effective)
    return Judgement(objective, estimate, answer or answer_of(estimate.low, estimate.high, objective.q))


def judged_view(load: float, objective: Objective, share: float, effective: float = 400, **numbers: float) -> StageView:
    by_key = {_key(name): value for name, value in numbers.items()}
    return view(load, by_key, judgements=(judged(objective, share, effective),))
