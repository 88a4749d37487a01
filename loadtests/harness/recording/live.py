"""What a run looks like so far, stage by stage.

These numbers are for watching. They count a whole stage, warm-up included, and percentiles come from logarithmic
buckets, within 1 % of the exact ones. What a report says is computed from the records.
"""

from __future__ import annotations

from collections.abc import Sequence

from loadtests.harness.exporter.counts import Counts
from loadtests.harness.exporter.sketches import milliseconds
from records.stage import SECOND, Stage

PERCENTILES = {"p50": 0.5, "p99": 0.99}
COLUMNS = {
    "stage": "Stage",
    "load": "Load",
    "answered": "Answers",
    "failed": "Failed",
    "ttft_p50": "TTFT p50 (ms)",
    "ttft_p99": "TTFT p99 (ms)",
    "tpot_p50": "TPOT p50 (ms)",
    "tpot_p99": "TPOT p99 (ms)",
    "tokens": "Output tokens/s",
    "goodput": "Goodput (req/s)",
    "in_flight": "In flight",
}


def rows(stages: Sequence[Stage], counts: Counts, now: int) -> list[dict[str, str]]:
    """A row of `COLUMNS` for each stage that has begun, the newest first. `now`: nanoseconds since the run's start."""
    found = []
    for stage in reversed(stages):
        one = counts.stage(stage.index)
        seconds = max((now if stage.end is None else stage.end) - stage.start, 1) / SECOND
        row = {"stage": f"{stage.index + 1}", "load": stage.label}
        row |= {"answered": f"{one.outcomes['ok']:,}", "failed": f"{one.sketches.failed:,}"}
        for short, name in (("ttft", "ttft_user"), ("tpot", "tpot")):
            row |= {f"{short}_{q}": milliseconds(one.sketches.percentile(name, at)) for q, at in PERCENTILES.items()}
        row |= {"tokens": f"{one.output_tokens / seconds:,.0f}", "goodput": f"{one.good / seconds:,.1f}"}
        row["in_flight"] = f"{counts.in_flight:,}" if stage.end is None else ""
        found.append(row)
    return found
