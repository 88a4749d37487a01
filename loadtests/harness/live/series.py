"""TTFT and output over time, for the charts of Locust's page: of the requests that ended in the last seconds, over all
processes, in warm-ups and holds too. Made from counts that only grow, so a point is the difference of two of them."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from enginebench.records.metrics import BY_NAME
from enginebench.records.slo import RunObjectives, of_tier
from enginebench.records.stage import SECOND
from loadtests.harness.live.counts import Key
from loadtests.harness.live.live_run import LiveRun
from loadtests.harness.live.sketch import Sketch

TTFT = BY_NAME["ttft_user"]
EVERY = 2.0  # seconds between two points
BACK = 5  # points over whose time the requests of one have ended
MOST = 1000  # points; of a longer run every second one is dropped
Total = tuple[Sketch, int]  # TTFT, and output tokens


@dataclass(slots=True)
class LiveSeries:
    """Of one run. A point is its second, TTFT p50 and p99 in seconds, and output tokens per second; `None` where no
    request ended, or the percentile is that of a failed one."""

    live: LiveRun
    points: list[tuple[float, float | None, float | None, float]] = field(default_factory=list)
    _before: deque[tuple[float, dict[Key, Total]]] = field(default_factory=lambda: deque(maxlen=BACK))

    def sample(self, now: float) -> None:
        """`now` in seconds since the run's start."""
        totals = self._totals()
        if self._before:
            at, before = self._before[0]
            parts = [_since(total, before.get(key)) for key, total in totals.items()]
            ttft, tokens = Sketch(), sum(more for _, more in parts)
            for sketch, _ in parts:
                ttft.add(sketch)
            seen = ttft.distribution(self.live.scales.edges[TTFT.name], ttft.answered)
            p50, p99 = (_finite(seen.percentile(name).value) for name in ("p50", "p99"))
            self.points.append((round(now, 1), p50, p99, round(tokens / (now - at), 1)))
        self._before.append((now, totals))
        if len(self.points) > MOST:
            del self.points[::2]

    def document(self) -> dict[str, Any]:
        """For the page: also when which load began, and the limit of an objective on TTFT, in seconds."""
        meta = self.live.meta
        objectives = of_tier(RunObjectives.of(meta.workload).of_all)
        limits = [objective.limit for objective in objectives if objective.column == TTFT.name]
        stages = [(round(stage.start / SECOND, 1), stage.label) for stage in meta.stages]
        return {"points": self.points, "stages": stages, "limit": min(limits, default=None)}

    def _totals(self) -> dict[Key, Total]:
        """Only the last stages still grow."""
        recent = {stage.index for stage in self.live.stages[-3:]}
        totals = {}
        for key in self.live.keys:
            if key[0] in recent:
                counts = self.live.counts(key)
                ttft = counts.sketches[TTFT.name]
                copy = Sketch(dict(ttft.known), {}, ttft.failed, ttft.answered, ttft.total)
                totals[key] = (copy, counts.output_tokens)
        return totals


def _since(total: Total, before: Total | None) -> Total:
    if before is None:
        return total
    (now, tokens), (then, tokens_then) = total, before
    known = {bucket: count - then.known.get(bucket, 0) for bucket, count in now.known.items()}
    grown = {bucket: count for bucket, count in known.items() if count > 0}
    return Sketch(grown, {}, now.failed - then.failed, now.answered - then.answered), tokens - tokens_then


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
