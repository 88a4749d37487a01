"""What is compared between engines, and gated between versions: one number of each stage for each measure.

The metrics are those of records/metrics.py. Of a latency its percentiles are compared and not its mean, which leaves
failed requests out and so favours an engine that refuses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from analysis.compare.engine_runs import headline_ttft
from analysis.stats.estimate import Estimate
from analysis.stats.repeats import chance_error, within_run_error
from analysis.summary.run_summary import RunSummary
from analysis.summary.stage import StageSummary
from records.metrics import BY_NAME, QUANTITIES, Metric, Quantity

Better = Literal["higher", "lower"]

PERCENTILES = {"ttft": ("p50", "p95", "p99"), "tpot": ("p50", "p95"), "e2e": ("p50", "p95", "p99")}
LATENCY, TTFT, THROUGHPUT = "e2e p50", "ttft p50", "throughput"
MEMORY = {"engine_memory_bytes": "engine memory", "gpu_memory_bytes": "GPU memory"}
SHARES = ("attainment", "failure_share")  # may be 0, so their difference is compared and not their ratio


@dataclass(frozen=True, slots=True)
class Measure:
    """`of` gives a stage's value in `unit`: `None` where it was not measured, +∞ for a percentile among failures."""

    name: str
    title: str
    unit: str
    better: Better
    of: Callable[[StageSummary], float | None]
    relative: bool = True
    metric: str | None = None  # the request metric it is a percentile of
    estimate: Callable[[StageSummary], Estimate | None] | None = None  # with its interval inside the run

    def least_error(self, ours: Sequence[StageSummary], theirs: Sequence[StageSummary]) -> float:
        """Of the difference of two groups of runs: what the spread inside them makes, and chance of a share."""
        if self.estimate is None:
            return 0.0
        one, other = ([found for stage in side if (found := self.estimate(stage))] for side in (ours, theirs))
        inside = math.hypot(within_run_error(one), within_run_error(other))
        if self.relative:
            return inside
        shares, others = ([found.value or 0.0 for found in side] for side in (one, other))
        return max(inside, chance_error(shares, others, [found.n for found in one], [found.n for found in other]))


def measures_of(summaries: Sequence[RunSummary]) -> tuple[Measure, ...]:
    """Latencies on the user's clock where TTFT is shown on it (open loops, late load generators)."""
    user = headline_ttft(summaries) == "ttft_user"
    latencies = [
        _percentile(name, p, BY_NAME[f"{name}_user"] if user and name != "tpot" else BY_NAME[name])
        for name, percentiles in PERCENTILES.items()
        for p in percentiles
    ]
    quantities = [_quantity(quantity, quantity.better) for quantity in QUANTITIES if quantity.better]
    memory = [Measure(gauge, title, "B", "lower", _mean_of(gauge)) for gauge, title in MEMORY.items()]
    return (*latencies, *(one for one in quantities if one.name != "user_throughput"), *memory)


def _percentile(name: str, p: str, metric: Metric) -> Measure:
    def of(stage: StageSummary) -> float | None:
        return estimate(stage).value

    def estimate(stage: StageSummary) -> Estimate:
        return stage.latencies[metric.name].percentile(p)

    return Measure(f"{name} {p}", f"{metric.title} {p}", "s", "lower", of, metric=metric.name, estimate=estimate)


def _quantity(quantity: Quantity, better: Better) -> Measure:
    def found(stage: StageSummary) -> Estimate | float | None:
        if quantity.name not in {"goodput", "attainment"}:
            plain: Estimate | float | None = getattr(stage, quantity.name)
            return plain
        attainment = stage.attainment
        if attainment is None:
            return None
        return attainment.goodput if quantity.name == "goodput" else attainment.share

    def of(stage: StageSummary) -> float | None:
        one = found(stage)
        return one.value if isinstance(one, Estimate) else one

    def estimate(stage: StageSummary) -> Estimate | None:
        one = found(stage)
        return one if isinstance(one, Estimate) else None

    title = f"{quantity.title} {quantity.unit}" if "/" in quantity.unit else quantity.title
    relative = quantity.name not in SHARES
    return Measure(quantity.name, title, quantity.unit, better, of, relative=relative, estimate=estimate)


def _mean_of(gauge: str) -> Callable[[StageSummary], float | None]:
    return lambda stage: stage.telemetry_mean(gauge)
