"""The view of a stage from its counts: what a report computes from the records, without intervals, at any time.

Quantities that need the whole window, or samples that are read only afterwards, are not in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from enginebench.records.counts import OF_ANSWERS, OF_REQUESTS
from enginebench.records.findings.load import LITTLE_WINDOWS
from enginebench.records.findings.table import findings_of_view
from enginebench.records.load import Rate
from enginebench.records.metrics import QUANTITIES
from enginebench.records.rules import UNJUDGED, is_failure
from enginebench.records.run import RunMeta
from enginebench.records.stage import SECOND, Nanoseconds, Stage
from enginebench.records.view import Distribution, Estimate, Level, StageKey, StageView
from loadtests.harness.live.scales import METRICS, Scales
from loadtests.harness.live.stage_counts import StageCounts
from loadtests.harness.live.windows import SETTLED

MOST_FAILURES = 5  # ways to fail that are listed


@dataclass(frozen=True, slots=True)
class LiveStage:
    """What the quantities of one window are made of. `seconds` are those of the window that have been counted, a
    moment less than have passed; 0 at its very beginning."""

    counts: StageCounts
    metrics: Mapping[str, Distribution]
    seconds: float
    over: bool  # everything scheduled in it has its answer, or never will
    has_objectives: bool

    @property
    def attempted(self) -> int:
        return self.counts.requests - sum(self.counts.outcomes[outcome] for outcome in UNJUDGED)

    @property
    def failed(self) -> int:
        return sum(count for outcome, count in self.counts.outcomes.items() if is_failure(outcome))

    def per_second(self, total: float) -> float | None:
        return total / self.seconds if self.seconds else None


def view_of(
    stage: Stage, key: StageKey, counts: StageCounts, scales: Scales, run: RunMeta, now: Nanoseconds
) -> StageView:
    """Of a stage whose window has begun, with its findings; `now` in nanoseconds since the run's start."""
    assert stage.steady_start is not None
    load, end = stage.load, next(at for at in (stage.steady_end, stage.end, now) if at is not None)
    ok = counts.outcomes["ok"]
    metrics = {
        metric.name: counts.sketches[metric.name].distribution(scales.edges[metric.name], ok) for metric in METRICS
    }
    counted = end if stage.end is not None else min(end, now - SETTLED)
    seconds = max(counted - stage.steady_start, 0) / SECOND
    live = LiveStage(counts, metrics, seconds, stage.end is not None, bool(scales.objectives))
    values = {name: quantity(live) for name, quantity in LIVE_QUANTITIES.items()}
    view = StageView(
        index=stage.index,
        label=key.label,
        load=load.value,
        load_unit=load.unit,
        is_open=isinstance(load, Rate),
        varies=isinstance(load, Rate) and load.varies,
        named=stage.plan.name is not None,
        start=stage.steady_start / SECOND,
        end=end / SECOND,
        complete=stage.steady_end is not None,
        outcomes={outcome: count for outcome, count in sorted(counts.outcomes.items()) if count},
        failures=dict(sorted(counts.failures.items(), key=lambda one: (-one[1], one[0]))[:MOST_FAILURES]),
        counts={name: round(counts.sum(name)) for name in (*OF_REQUESTS, *OF_ANSWERS, "uncounted_chunks")}
        | {"unserved_users": stage.unserved_users, "unanswered": stage.unanswered}
        | _lost(stage, run),
        metrics=metrics,
        quantities={name: Estimate(value, n=counts.requests) for name, value in values.items() if value is not None},
        gauges={name: Level(total / n, peak) for name, (n, total, peak) in counts.gauges.items()},
    )
    return replace(view, findings=findings_of_view(view, run))


def _lost(stage: Stage, run: RunMeta) -> dict[str, int]:
    """Worker processes that the stage had to do without, for the finding on them. A report has one of its own."""
    lost = [process for process in run.lost if stage.end is None or process.t < stage.end]
    arrivals = sum(process.arrivals for process in lost)
    return {"processes_lost": len(lost), "arrivals_missing": arrivals} if lost else {}


def _per_second(name: str) -> Callable[[LiveStage], float | None]:
    return lambda stage: stage.per_second(stage.counts.sum(name))


def _mean(name: str) -> Callable[[LiveStage], float | None]:
    return lambda stage: None if (mean := stage.counts.mean(name)) is None else max(mean, 0.0)


def _throughput(stage: LiveStage) -> float | None:
    """Where no answer's tokens are known, neither is the throughput: it is not 0. Tokens are counted as answers end."""
    tokens = stage.counts.sum("tokens")
    if not tokens and not stage.over:
        return None
    unknown = stage.counts.sum("uncounted_chunks") or stage.counts.sum("completed_uncounted")
    return None if unknown and not tokens else stage.per_second(tokens)


def _user_throughput(stage: LiveStage) -> float | None:
    tpot = stage.metrics["tpot"].percentile("p50").value
    return 1 / tpot if tpot else None


def _littles_law(stage: LiveStage) -> float | None:
    """L = λW (Little 1961), where the window is long enough against the requests to be compared."""
    stay = stage.counts.mean("stay")
    if stay is None or not stage.over or stage.seconds < LITTLE_WINDOWS * stay:
        return None
    return stage.per_second(stage.counts.sum("stay"))


def _tokens_per_chunk(stage: LiveStage) -> float | None:
    chunks = stage.counts.sum("chunks")
    return stage.counts.sum("tokens_in_chunks") / chunks if chunks else None


LIVE_QUANTITIES: Mapping[str, Callable[[LiveStage], float | None]] = {
    "offered_rate": lambda stage: stage.per_second(stage.counts.requests) if stage.over else None,
    "achieved_rate": _per_second("completed"),
    "throughput": _throughput,
    "user_throughput": _user_throughput,
    "goodput": lambda stage: stage.per_second(stage.counts.good) if stage.has_objectives else None,
    "attainment": lambda stage: stage.counts.good / stage.counts.judged if stage.counts.judged else None,
    "failure_share": lambda stage: stage.failed / stage.attempted if stage.attempted else None,
    "failure_rate": lambda stage: stage.per_second(stage.failed),
    "concurrency": lambda stage: stage.per_second(stage.counts.sum("request_seconds")) if stage.over else None,
    "littles_law": _littles_law,
    "tokens_per_chunk": _tokens_per_chunk,
    **{quantity.name: _mean(quantity.name) for quantity in QUANTITIES if quantity.mean is not None},
}
"""Each is declared in records/metrics.py, and computed from the records by analysis/summary/quantities.py."""
