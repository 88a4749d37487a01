"""The growth of users in a test of one minute.

They double in brief stages until an objective is missed; the rest of the time is spent on the two loads around the
crossing.

The brief stages only show where to measure: in a report, the longer stage of the same load replaces them. The next
stage is a pure function of the views of the stages so far.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from enginebench.records.load import Users
from enginebench.records.metrics import E2E_SINCE_DUE, PERCENTILES
from enginebench.records.slo import Objective
from enginebench.records.stage import Extent, StagePlan
from enginebench.records.view import StageView

FIRST, BRIEF, MIN_LONG = 3.0, 1.5, 4.0  # seconds of a window: first stage, brief stage, minimum of a long stage
WARM_UP = 0.5  # minimum in seconds; the warm-up lasts until every user has had an answer
STARTING = 0.25  # share of the time that starting the server and the load generator may use
GROWING, HALVING = 0.65, 0.5  # shares of the time after which users stop doubling, and halving the bracket stops
NARROW = 1.5  # ratio of the two loads around the crossing up to which no load between them is measured
LOWER = 0.65  # share of the time for the lower load: a load that is met needs more answers than one that is missed
MIN_ABOVE = 2  # requests above the percentile by which a brief stage is judged
LOWEST = next(iter(PERCENTILES))
BOUND = 20.0  # maximum seconds for a stage's first and last answers


@dataclass(frozen=True, slots=True)
class Growth:
    """The growth of up to `most` users within `seconds`, the duration of the whole test."""

    objectives: tuple[Objective, ...]
    seconds: float
    most: int = 100

    @property
    def first(self) -> StagePlan:
        return self._stage(1, FIRST, self.seconds)

    def following(self, stages: Sequence[StageView], elapsed: float) -> StagePlan | None:
        """Return the next stage, `elapsed` seconds after the run's start; `None` when the time is over."""
        if not stages:  # the window of the first stage never began
            return None
        latest = {round(stage.load): stage for stage in stages}  # for each load, the last stage counts
        long = {users for users, stage in latest.items() if stage.seconds >= MIN_LONG}
        missed = min((users for users, stage in latest.items() if not meets(stage, self.objectives)), default=None)
        met = max((users for users in latest if missed is None or users < missed), default=None)
        seconds_left = self.seconds - elapsed

        def brief(users: int, until: float) -> StagePlan | None:
            """Plan a brief stage; `None` if it would end after the share `until` of the time."""
            window = FIRST if users == 1 else BRIEF
            ends = elapsed + window + _answers(latest, users)
            return self._stage(users, window, seconds_left) if ends <= until * self.seconds else None

        if len(stages) == 1 and missed is not None:  # the first requests of a server may be slow: repeat the stage
            return brief(1, 1.0)
        if missed is None and max(latest) < self.most and not long:
            doubled = brief(min(2 * max(latest), self.most), GROWING)
            if doubled is not None:
                return doubled
        if met is not None and missed is not None and missed > max(NARROW * met, met + 1):
            halved = brief((met + missed) // 2, HALVING)
            if halved is not None:
                return halved
        around = [users for users in (met, missed) if users is not None and users not in long]
        if not around:
            return None
        share = LOWER if len(around) > 1 else 1.0
        window = share * seconds_left - _answers(latest, around[0])
        return self._stage(around[0], window, seconds_left) if window >= MIN_LONG else None

    def _stage(self, users: int, window: float, seconds_left: float) -> StagePlan:
        bound = min(BOUND, max(seconds_left - window, WARM_UP) / 2)
        return StagePlan(Users(users), Extent(WARM_UP), Extent(window), bound=bound, brief=window < MIN_LONG)


def meets(stage: StageView, objectives: Sequence[Objective]) -> bool:
    """Judge a stage by its values, without intervals. A stage without an answer meets no objective."""
    return stage.ok > 0 and all(_meets(stage, objective) for objective in objectives)


def _meets(stage: StageView, objective: Objective) -> bool:
    """Judge one objective. With few requests, a lower percentile counts, so that one slow answer cannot end growth."""
    if objective.judged is None:
        judgement = stage.judgement(objective)
        return judgement is None or judgement.share.value is None or judgement.share.value >= objective.q
    names = [name for name, q in PERCENTILES.items() if q <= objective.q and stage.requests * (1 - q) >= MIN_ABOVE]
    value = stage.estimate(objective.judged.name, names[-1] if names else LOWEST).value
    return value is None or value <= objective.limit  # answers of one token have no TPOT


def _answers(latest: dict[int, StageView], users: int) -> float:
    """Predict the seconds of the first and the last answers at this load, from the highest measured load up to it. If
    that load is lower, multiply by the ratio between the last two loads."""
    below = sorted(load for load in latest if load <= users)[-2:] or [min(latest)]
    before, longest = _longest(latest[below[0]]), _longest(latest[below[-1]])
    if users > below[-1] and before > 0:
        longest *= min(max(longest / before, 1.0), users / below[-1])
    return max(WARM_UP, longest) + longest


def _longest(stage: StageView) -> float:
    """Return the seconds of a slow answer."""
    e2e = stage.metrics[E2E_SINCE_DUE]
    slow = (e2e.answered or {}).get("p99") or e2e.percentile("p99").value
    return slow if slow is not None and math.isfinite(slow) else e2e.mean or 0.0
