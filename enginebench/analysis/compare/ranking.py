"""Which engine is the baseline, which load is that of the headline, in what order the engines stand, and which of them
are compared with one another."""

from __future__ import annotations

from collections.abc import Sequence

from enginebench.analysis.compare.capacity import SloCapacity
from enginebench.analysis.compare.engine_runs import DECIDING, EngineRuns, stages_of
from enginebench.analysis.compare.metric_comparison import geometric_mean
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.settings.schema import UserMistake

BASELINE = "transformers"  # the baseline where it is among the engines and none is named


def baseline_of(labels: Sequence[str], wanted: str | None = None) -> str:
    """Raises `UserMistake` for one that there is not."""
    if wanted is None:
        return BASELINE if BASELINE in labels else labels[0]
    if wanted not in labels:
        raise UserMistake(f"there are no runs of `{wanted}`; the baseline is one of {', '.join(labels)}.")
    return wanted


def stage_of_headline(
    summaries: Sequence[RunSummary],
    stages: Sequence[str],
    capacities: Sequence[SloCapacity],
    wanted: str | None = None,
) -> str | None:
    """With objectives the heaviest common stage at which some engine meets them: beyond it, all miss them.

    Raises `UserMistake` for one that is not among the common `stages`.
    """
    if wanted is not None and wanted not in stages:
        known = f"choose from {', '.join(stages)}" if stages else "they have none"
        raise UserMistake(f"the runs have no common stage `{wanted}`; {known}.")
    if wanted is not None or not stages:
        return wanted
    most = max((capacity.met for capacity in capacities if capacity.met is not None), default=None)
    if most is None:
        return stages[-1]
    loads = {stage.label: stage.load for stage in stages_of(summaries)}
    return next((label for label in reversed(stages) if loads[label] <= most), stages[-1])


def order_of(engines: Sequence[EngineRuns], stage: str | None, capacities: Sequence[SloCapacity]) -> tuple[str, ...]:
    """Best first: by the load that meets the objectives, then by throughput."""
    met = {capacity.engine: capacity.met or 0.0 for capacity in capacities}

    def rank(engine: EngineRuns) -> tuple[float, float]:
        rates = [] if stage is None else [view.value(DECIDING) for view in engine.at(stage)]
        return met.get(engine.label, 0.0), geometric_mean(rates)

    return tuple(engine.label for engine in sorted(engines, key=rank, reverse=True))


def pairs_of(order: Sequence[str], base: str) -> list[tuple[str, str]]:
    """Each engine with the baseline, and the best with each other; no pair twice."""
    pairs = [(label, base) for label in order if label != base]
    return pairs + [(order[0], label) for label in order[1:] if base not in {order[0], label}]
