"""The counts of one stage, in one process or in all of them: they only grow, and add up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from loadtests.harness.live.scales import METRICS
from loadtests.harness.live.sketch import Sketch
from loadtests.harness.live.tallies import Sum
from records.request import Outcome

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


@dataclass(slots=True)
class StageCounts:
    """Requests of one stage and phase that have ended. `sums` holds how many values of a name there were, and their sum
    (`tallies.py`); `failures` how often what failed; `gauges` how many samples of one process, their sum and peak.

    `good` ones met every objective, `judged` ones can be said to have met them or not.
    """

    sketches: dict[str, Sketch] = field(default_factory=lambda: {metric.name: Sketch() for metric in METRICS})
    outcomes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    sums: dict[str, list[float]] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    gauges: dict[str, tuple[int, float, float]] = field(default_factory=dict)
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
                    self.sums[name] = [1, value]
                else:
                    known[0] += 1
                    known[1] += value

    def sampled(self, name: str, value: float) -> None:
        n, total, peak = self.gauges.get(name, (0, 0.0, 0.0))
        self.gauges[name] = (n + 1, total + value, max(peak, value))

    def add(self, other: StageCounts) -> None:
        for name, sketch in other.sketches.items():
            self.sketches[name].add(sketch)
        for outcome, count in other.outcomes.items():
            self.outcomes[outcome] += count
        for name, sums in other.sums.items():
            self.sums[name] = [a + b for a, b in zip(self.sums.get(name, (0, 0.0)), sums, strict=True)]
        self.failures.update(other.failures)
        for name, gauge in other.gauges.items():  # that of the process with the largest mean
            known = self.gauges.get(name)
            if known is None or gauge[1] / gauge[0] > known[1] / known[0]:
                self.gauges[name] = gauge
        self.good += other.good
        self.judged += other.judged
        self.output_tokens += other.output_tokens
        self.prompt_tokens += other.prompt_tokens

    def message(self) -> list[Any]:
        """`StageCounts.taken` is the other side."""
        return [
            [sketch.message() for sketch in self.sketches.values()],
            list(self.outcomes.values()),
            self.sums,
            dict(self.failures),
            self.gauges,
            [self.good, self.judged, self.output_tokens, self.prompt_tokens],
        ]

    @classmethod
    def taken(cls, message: Sequence[Any]) -> StageCounts:
        sketches, outcomes, sums, failures, gauges, rest = message
        return cls(
            {metric.name: Sketch.taken(one) for metric, one in zip(METRICS, sketches, strict=True)},
            dict(zip(OUTCOMES, outcomes, strict=True)),
            {name: list(both) for name, both in sums.items()},
            Counter(failures),
            {name: (n, total, peak) for name, (n, total, peak) in gauges.items()},
            *rest,
        )
