"""The counts of one stage, in one process or in all of them: they only grow, and add up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

import msgspec

from enginebench.records.request import Outcome
from loadtests.harness.live.scales import METRICS
from loadtests.harness.live.sketch import Sketch
from loadtests.harness.live.tallies import Sum

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
MOST_WAYS = 50  # to fail that are told apart: some servers name the request in each error


class StageCounts(msgspec.Struct):
    """Requests of one stage and phase that have ended. `sums` holds how many values of a name there were, and their sum
    (`tallies.py`); `failures` how often what failed; `gauges` how many samples of one process, their sum and peak.

    `good` ones met every objective, `judged` ones can be said to have met them or not.
    """

    sketches: dict[str, Sketch] = msgspec.field(default_factory=lambda: {metric.name: Sketch() for metric in METRICS})
    outcomes: dict[str, int] = msgspec.field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    sums: dict[str, list[float]] = {}
    failures: dict[str, int] = {}
    gauges: dict[str, tuple[int, float, float]] = {}
    good: int = 0
    judged: int = 0
    output_tokens: int = 0
    prompt_tokens: int = 0

    @property
    def requests(self) -> int:
        return sum(self.outcomes.values())

    def sum(self, name: str) -> float:
        return self.sums.get(name, (0, 0.0))[1]

    def mean(self, name: str) -> float | None:
        n, total = self.sums.get(name, (0, 0.0))
        return total / n if n else None

    def tally(self, sums: Iterable[Sum]) -> None:
        for name, value in sums:
            if value is not None:
                known = self.sums.get(name)
                if known is None:
                    self.sums[name] = [1, float(value)]
                else:
                    known[0] += 1
                    known[1] += value

    def sampled(self, name: str, value: float) -> None:
        n, total, peak = self.gauges.get(name, (0, 0.0, 0.0))
        self.gauges[name] = (n + 1, total + value, max(peak, value))

    def failed(self, outcome: Outcome, detail: str | None) -> None:
        way = f"{outcome}: {detail}" if detail else outcome
        way = way if way in self.failures or len(self.failures) < MOST_WAYS else outcome
        self.failures[way] = self.failures.get(way, 0) + 1

    def add(self, other: StageCounts) -> None:
        for name, sketch in other.sketches.items():
            self.sketches[name].add(sketch)
        for outcome, count in other.outcomes.items():
            self.outcomes[outcome] += count
        for name, sums in other.sums.items():
            self.sums[name] = [a + b for a, b in zip(self.sums.get(name, (0, 0.0)), sums, strict=True)]
        for failure, count in other.failures.items():
            self.failures[failure] = self.failures.get(failure, 0) + count
        for name, gauge in other.gauges.items():  # that of the process with the largest mean
            known = self.gauges.get(name)
            if known is None or gauge[1] / gauge[0] > known[1] / known[0]:
                self.gauges[name] = gauge
        self.good += other.good
        self.judged += other.judged
        self.output_tokens += other.output_tokens
        self.prompt_tokens += other.prompt_tokens
