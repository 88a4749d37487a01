"""When a winner is named: it is better than each other engine, in enough runs that are alike and served what was asked.

With objectives, better is to hold a load that the other misses; where both hold and miss the same loads, and without
objectives, it is to serve more tokens at the headline's load.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from analysis.compare.engine_runs import DECIDING, EngineRuns
from analysis.stats.repeats import REPEATS
from records.formatting import format_share
from records.rules import FAILURES_BORNE

if TYPE_CHECKING:
    from analysis.compare.comparison import Comparison


def why_no_winner(comparison: Comparison, engines: Mapping[str, EngineRuns]) -> str | None:
    """`None` where the first engine is the winner."""
    best, others = comparison.engines[0], comparison.engines[1:]
    if not others:
        return "there is only one engine"
    if comparison.stage is None and not comparison.capacities:
        return "the runs have no stage in common"
    for label in (best, *others):
        if label in comparison.unlike:
            return comparison.unlike[label]
    if comparison.stage is not None and (failed := _overloaded(engines[best], comparison.stage)) is not None:
        return failed
    if min(comparison.runs.values()) < REPEATS:
        return f"a winner needs {REPEATS} repeats of each"
    if comparison.capacities and all(capacity.met is None for capacity in comparison.capacities):
        return f"no load is known to meet {comparison.capacities[0].slo}"
    return next((why for other in others if (why := _not_better(comparison, best, other)) is not None), None)


def _not_better(comparison: Comparison, best: str, other: str) -> str | None:
    ratio = comparison.capacity_ratio(best, other)
    if ratio is not None and ratio.verdict == "more":
        return None
    if ratio is not None and not _same_bracket(comparison, best, other):
        return f"whether {best} holds more {comparison.capacities[0].unit} than {other} is undecided"
    tokens = comparison.of(comparison.stage, best, DECIDING, other)
    if tokens is None:
        return f"the tokens of {best} and {other} were not counted in every run"
    return None if tokens.verdict == "better" else f"against {other}, {tokens.why or 'no difference is shown'}"


def _same_bracket(comparison: Comparison, engine: str, other: str) -> bool:
    """Both meet the objectives up to the same load and miss them from the same on: then tokens decide."""
    ours, theirs = comparison.capacity(engine), comparison.capacity(other)
    return ours is not None and theirs is not None and (ours.met, ours.missed) == (theirs.met, theirs.missed)


def _overloaded(best: EngineRuns, stage: str) -> str | None:
    shares = [view.value("failure_share") for view in best.at(stage)]
    if all(share is not None and share <= FAILURES_BORNE for share in shares):
        return None
    share = best.mean(lambda view: view.value("failure_share"), stage)
    return f"{format_share(share)} of the requests to {best.label} failed"
