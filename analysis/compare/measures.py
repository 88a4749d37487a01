"""What is compared between engines, and gated between versions: one number of each stage for each measure.

The metrics are those of records/metrics.py. Of a latency its percentiles are compared and not its mean, which leaves
failed requests out and so favours an engine that refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from analysis.compare.engine_runs import headline_ttft
from records.view import Estimate
from analysis.stats.repeats import chance_error
from analysis.summary.run_summary import RunSummary
from records.view import StageView
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
    of: Callable[[StageView], float | None]
    relative: bool = True
    metric: str | None = None  # the request metric it is a percentile of
    share: Callable[[StageView], Estimate | None] | None = None  # the share that it is, with its number of requests

    def least_error(self, ours: Sequence[StageView], theirs: Sequence[StageView]) -> float:
        """Of the difference of two groups of runs: of a share, what chance makes of its requests."""
        if self.share is None:
            return 0.0
        one, other = ([found for stage in side if (found := self.share(stage))] for side in (ours, theirs))
        shares, others = ([found.value or 0.0 for found in side] for side in (one, other))
        return chance_error(shares, others, [found.n for found in one], [found.n for found in other])


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
    def of(stage: StageView) -> float | None:
        return stage.latencies[metric.name].percentile(p).value

    return Measure(f"{name} {p}", f"{metric.title} {p}", "s", "lower", of, metric=metric.name)


def _quantity(quantity: Quantity, better: Better) -> Measure:
    def found(stage: StageView) -> Estimate | float | None:
        if quantity.name not in {"goodput", "attainment"}:
            plain: Estimate | float | None = getattr(stage, quantity.name)
            return plain
        attainment = stage.attainment
        if attainment is None:
            return None
        return attainment.goodput if quantity.name == "goodput" else attainment.share

    def of(stage: StageView) -> float | None:
        one = found(stage)
        return one.value if isinstance(one, Estimate) else one

    def share(stage: StageView) -> Estimate | None:
        one = found(stage)
        assert one is None or isinstance(one, Estimate), f"{quantity.name} is no share"
        return one

    title = f"{quantity.title} {quantity.unit}" if "/" in quantity.unit else quantity.title
    if quantity.name in SHARES:
        return Measure(quantity.name, title, quantity.unit, better, of, relative=False, share=share)
    return Measure(quantity.name, title, quantity.unit, better, of)


def _mean_of(gauge: str) -> Callable[[StageView], float | None]:
    return lambda stage: stage.telemetry_mean(gauge)
