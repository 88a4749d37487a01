"""TTFT and output over time, for the charts of Locust's page: over all processes, also in warm-ups and holds.

A point is the difference between two copies of the counts."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

from enginebench.records.metrics import BY_NAME, TTFT_SINCE_DUE
from enginebench.records.slo import RunObjectives, in_tier
from enginebench.records.stage import SECOND
from loadtests.harness.live.counts import Counts
from loadtests.harness.live.live_run import LiveRun

TTFT = BY_NAME[TTFT_SINCE_DUE]
EVERY = 2.0  # seconds between two points
BACK = 5  # points that a difference spans
MAX_POINTS = 1000  # beyond them, every second point is dropped


class LiveSeries:
    """The series of one run. A point is its second, TTFT p50 and p99 in seconds, and output tokens per second. A
    percentile is `None` if no request ended, or if it falls among failed requests."""

    def __init__(self, live: LiveRun) -> None:
        self.live = live
        self.points: list[tuple[float, float | None, float | None, float]] = []
        self._before: deque[tuple[float, Counts]] = deque(maxlen=BACK)

    def sample(self, now: float) -> None:
        """Add a point at `now`, in seconds since the run's start."""
        counts = self.live.counts()
        if self._before:
            at, before = self._before[0]
            ttft = counts.histogram(TTFT.name).since(before.histogram(TTFT.name))
            ok = counts.outcomes["ok"] - before.outcomes["ok"]
            distribution = ttft.distribution(self.live.metrics[TTFT.name].edges, ok)
            values = [distribution.percentile(name).value for name in ("p50", "p99")]
            p50, p99 = (value if value is not None and math.isfinite(value) else None for value in values)
            tokens = counts.output_tokens - before.output_tokens
            self.points.append((round(now, 1), p50, p99, round(tokens / (now - at), 1)))
        self._before.append((now, counts))
        if len(self.points) > MAX_POINTS:
            del self.points[::2]

    def document(self) -> dict[str, Any]:
        """Return the points, the start and label of each stage, and the limit of an objective on TTFT, in seconds."""
        meta = self.live.meta
        objectives = in_tier(RunObjectives.from_workload(meta.workload).for_all)
        limits = [objective.limit for objective in objectives if objective.column == TTFT.name]
        stages = [(round(stage.start / SECOND, 1), stage.label) for stage in meta.stages]
        return {"points": self.points, "stages": stages, "limit": min(limits, default=None)}
