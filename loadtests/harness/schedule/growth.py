"""How the users grow in a test of one minute: from one on they double, in short stages, until an objective is missed;
the time that is left is spent on the two loads around the crossing.

The short stages only say where to measure: what they hint at counts in a report as far as its intervals allow. Pure:
the views of the stages so far come in, the next stage comes out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from records.load import Users
from records.metrics import PERCENTILES
from records.slo import Objective
from records.stage import Extent, StagePlan
from records.view import StageView

SHORT, LEAST = 2.0, 3.0  # seconds of the window of a short stage, and at least of a long one
WARM_UP = {False: 0.5, True: 1.0}  # seconds, of a short stage and of a long one; prolonged until all users are answered
GROWING, HALVING = 0.6, 0.4  # shares of the time after which users no longer double, and the crossing is not halved
NARROW = 1.3  # ratio of the two loads around the crossing from which on nothing is measured between them
FEW = 2  # requests that are above the percentile by which a short stage is judged
LOWEST = next(iter(PERCENTILES))
BOUND = 20.0  # seconds that a stage's last answers get


@dataclass(frozen=True, slots=True)
class Growth:
    """`seconds` are those of the whole test, `most` the users at most."""

    objectives: tuple[Objective, ...]
    seconds: float
    most: int = 100

    @property
    def first(self) -> StagePlan:
        return self._stage(1, SHORT, long=False)

    def following(self, stages: Sequence[StageView], elapsed: float) -> StagePlan | None:
        """The stage after those that ended, `elapsed` seconds after the run's start; `None` when the time is up."""
        if not stages:  # the window of the first one never began
            return None
        kept = {round(stage.load): keeps(stage, self.objectives) for stage in stages}  # of a load the last one counts
        long = {round(stage.load) for stage in stages if stage.seconds >= LEAST}
        missed = min((users for users, met in kept.items() if not met), default=None)
        held = max((users for users in kept if missed is None or users < missed), default=None)
        if len(stages) == 1 and missed is not None:  # the first requests of a server may be slower than all others
            return self.first
        if missed is None and max(kept) < self.most and elapsed < GROWING * self.seconds:
            return self._stage(min(2 * max(kept), self.most), SHORT, long=False)
        early = elapsed < HALVING * self.seconds
        if early and held is not None and missed is not None and missed > max(NARROW * held, held + 1):
            return self._stage((held + missed) // 2, SHORT, long=False)
        around = [users for users in (held, missed) if users is not None and users not in long]
        if not around:
            return None
        window = (self.seconds - elapsed) / len(around) - WARM_UP[True] - _answer(stages)
        return self._stage(around[0], window, long=True) if window >= LEAST else None

    def _stage(self, users: int, seconds: float, long: bool) -> StagePlan:
        return StagePlan(Users(users), Extent(WARM_UP[long]), Extent(seconds), bound=BOUND)


def keeps(stage: StageView, objectives: Sequence[Objective]) -> bool:
    """By the values alone, without their intervals. A stage without an answer keeps no objective."""
    return stage.ok > 0 and all(_keeps(stage, objective) for objective in objectives)


def _keeps(stage: StageView, objective: Objective) -> bool:
    """Of few requests a lower percentile is taken: one slow answer ends no growth."""
    if objective.judged is None:
        return (stage.estimate("failure_share").value or 0.0) <= 1 - objective.q
    names = [name for name, q in PERCENTILES.items() if q <= objective.q and stage.requests * (1 - q) >= FEW]
    value = stage.estimate(objective.judged.name, names[-1] if names else LOWEST).value
    return value is None or value <= objective.limit  # none: answers of one token have no TPOT


def _answer(stages: Sequence[StageView]) -> float:
    """Seconds that the last answers of a stage take."""
    return stages[-1].metrics["e2e"].mean or 0.0
