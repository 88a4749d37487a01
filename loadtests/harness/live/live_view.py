"""The view of a stage from its counts, as a report computes it from the records, but without intervals."""

from __future__ import annotations

from dataclasses import replace

from enginebench.records.findings.kinds import findings_of_view
from enginebench.records.load import Rate
from enginebench.records.metrics import ATTAINMENT, FAILURE_SHARE, GOODPUT, THROUGHPUT
from enginebench.records.request import UNJUDGED
from enginebench.records.rules import is_failure
from enginebench.records.run import RunMeta
from enginebench.records.slo import Objective
from enginebench.records.stage import SECOND, Nanoseconds, Stage
from enginebench.records.view import NO_SAMPLES, Estimate, Judgement, StageKey, StageView
from loadtests.harness.live.buckets import CountedMetrics
from loadtests.harness.live.counts import SETTLED, Counts


def view_of(
    stage: Stage, key: StageKey, counts: Counts, metrics: CountedMetrics, run: RunMeta, now: Nanoseconds
) -> StageView:
    """Return the view of a stage whose window has begun, with the findings that counts allow; `now` in nanoseconds
    since the run's start."""
    assert stage.steady_start is not None
    load, end = stage.load, next(at for at in (stage.steady_end, stage.end, now) if at is not None)
    counted = end if stage.end is not None else min(end, now - SETTLED)
    outcomes = {outcome: count for outcome, count in sorted(counts.outcomes.items()) if count}
    failures = {outcome: count for outcome, count in outcomes.items() if is_failure(outcome)}
    quantities = _quantities(counts, max(counted - stage.steady_start, 0) / SECOND, stage.end is not None)
    if not metrics.objectives:
        del quantities[GOODPUT]
    requests = sum(outcomes.values())
    view = StageView(
        index=stage.index,
        label=key.label,
        load=load.value,
        load_unit=load.unit,
        is_open=isinstance(load, Rate),
        varies=isinstance(load, Rate) and load.varies,
        profile=load.profile if isinstance(load, Rate) else (),
        named=stage.plan.name is not None,
        start=stage.steady_start / SECOND,
        end=end / SECOND,
        complete=stage.steady_end is not None,
        outcomes=outcomes,
        failures=failures,
        counts={
            "unserved_users": stage.unserved_users,
            "unanswered": stage.unanswered,
            "retried": counts.retried,
        },
        metrics={
            name: counts.histogram(name).distribution(bucketed.edges, counts.outcomes["ok"])
            for name, bucketed in metrics.items()
        },
        judgements=tuple(
            _judgement(counts, objective, requests) for objective in metrics.objectives.for_all if requests
        ),
        quantities={name: Estimate(value, n=requests) for name, value in quantities.items() if value is not None},
    )
    return replace(view, findings=findings_of_view(view, run))


def _judgement(counts: Counts, objective: Objective, requests: int) -> Judgement:
    """Return the share as measured; without an interval, it is not confirmed."""
    met, missed = counts.met_and_missed.get(str(objective), (0, 0))
    n = met + missed
    share = Estimate(met / n, n=n) if n else NO_SAMPLES
    return Judgement(objective, share, "not confirmed", unknown=requests - n)


def _quantities(counts: Counts, seconds: float, over: bool) -> dict[str, float | None]:
    """Compute the quantities over `seconds` of a window; `None` if not known yet. Tokens are counted when answers end,
    so 0 tokens mean nothing before the stage is `over`, or if some answers have an unknown number of tokens."""
    ended = sum(count for outcome, count in counts.outcomes.items() if outcome not in UNJUDGED)
    failed = sum(count for outcome, count in counts.outcomes.items() if is_failure(outcome))
    tokens_known = counts.arrived or (over and not counts.uncounted)
    return {
        THROUGHPUT: counts.arrived / seconds if seconds and tokens_known else None,
        GOODPUT: counts.good / seconds if seconds else None,
        ATTAINMENT: counts.good / counts.evaluated if counts.evaluated else None,
        FAILURE_SHARE: failed / ended if ended else None,
    }
