"""A stage applies one load: warm-up, the measured steady window, and a hold until the window's requests are answered.

    start | warm-up | steady_start … steady_end | hold | end

A plan has the lengths of warm-up and window; their actual beginnings and ends are recorded during the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Annotated, Literal

import msgspec

from enginebench.records.load import Count, Load

SECOND = 1_000_000_000
MAX_DURATION = 10**8  # seconds, three years, so that sums and differences of instants fit into 64 bits
MAX_INSTANT = MAX_DURATION * SECOND
Nanoseconds = Annotated[int, msgspec.Meta(description="nanoseconds", ge=-MAX_INSTANT, le=MAX_INSTANT)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=MAX_DURATION)]


@dataclass(frozen=True, slots=True)
class Extent:
    """How long a part of a stage lasts: a time, or a number of requests."""

    amount: Seconds
    unit: Literal["seconds", "requests"] = "seconds"


@dataclass(frozen=True, slots=True)
class StagePlan:
    """The plan of a stage.

    `bound` limits, in seconds, the extension of the warm-up until every user has had an answer, and the hold until the
    window's requests are answered. `asks` are settings of the workload for this stage only, as text:
    `{"prompt_tokens": "200"}`. A `brief` stage locates a load; a longer stage of the same load replaces it.
    """

    load: Load
    warm_up: Extent
    window: Extent
    bound: Seconds = 60.0
    name: str | None = None
    asks: Mapping[str, str] = field(default_factory=dict)
    drains: bool = False  # an open loop sends nothing once the window is over
    brief: bool = False

    @property
    def label(self) -> str:
        return self.name or self.load.label

    @property
    def seconds(self) -> float | None:
        """Return the duration of warm-up and window without extension; `None` unless both are times."""
        parts = (self.warm_up, self.window)
        return sum(part.amount for part in parts) if all(part.unit == "seconds" for part in parts) else None


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage as it happened. Instants are nanoseconds since the run's start, `None` until reached.

    Requests scheduled in [`steady_start`, `steady_end`) are counted. `unserved_users` had no answer when the warm-up
    reached its bound, `unanswered` requests of the window had none when the hold reached its bound.
    """

    index: Count
    plan: StagePlan
    start: Nanoseconds
    steady_start: Nanoseconds | None = None
    steady_end: Nanoseconds | None = None
    end: Nanoseconds | None = None
    unserved_users: Count = 0
    unanswered: Count = 0

    @property
    def load(self) -> Load:
        return self.plan.load

    @property
    def label(self) -> str:
        return self.plan.label


def stage_at(stages: Sequence[Stage], t: Nanoseconds) -> Stage | None:
    """Return the stage at `t`; `None` before the first stage and after the end of the last."""
    return next((stage for stage in stages if stage.start <= t and (stage.end is None or t < stage.end)), None)


def changed(before: Sequence[Stage], now: Sequence[Stage]) -> Sequence[Stage]:
    """Return the stages of `now` from the first new or different one on; only the last if `before` had more stages."""
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, now, strict=False)))
    return now[min(same, len(now) - 1) if len(now) < len(before) else same :]
