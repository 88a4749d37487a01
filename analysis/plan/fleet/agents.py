"""How many agents one replica serves at an output speed, per GPU and per kilowatt.

An agent is a user in a closed loop: it asks, reads the answer, pauses as the measured users did, and asks again.
AA-AgentPerf (Artificial Analysis, June 2026) counts agents at 20 to 180 tokens/s each. Its workload is not published:
the figures here hold for the workload of the runs, and are not comparable with its results.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from analysis.plan.basis import Basis
from analysis.plan.fleet.replicas import BEYOND, SEEDS, SEEDS_TO_LOCATE, Attainment, Fleet, Peak
from analysis.plan.settings import PlanSettings
from records.load import Users
from records.slo import Objective

SHARE = 0.95  # of the answers that must have the speed
SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class AgentTier:
    """`agents` of one replica, each with `speed` tokens/s; `at_least` where the runs support no larger number."""

    speed: float
    agents: int
    at_least: bool
    per_gpu: float
    per_kilowatt: float | None  # None where no power was measured

    @property
    def sentence(self) -> str:
        bound = "at least " if self.at_least else ""
        if not self.agents:
            return f"{self.speed:g} tokens/s each: not even one agent"
        power = "" if self.per_kilowatt is None else f", {bound}{self.per_kilowatt:.3g} per kW"
        return f"{self.speed:g} tokens/s each: {bound}{self.agents} a replica, {self.per_gpu:.3g} per GPU{power}"


def agents_at(basis: Basis, settings: PlanSettings, gpus: int, joules_per_token: float | None) -> tuple[AgentTier, ...]:
    """One tier for each of `settings.agents`. Objectives on TTFT (`--slo ttft_…`) hold too."""
    most = max(math.floor(BEYOND * basis.measured.users), 1)
    waits = tuple(one for one in settings.slo if one.metric == "ttft")
    found = []
    for speed in settings.agents:
        objectives = (Objective("tpot", SHARE, 1 / speed), *waits)

        def served(agents: int, seeds: int, objectives: tuple[Objective, ...] = objectives) -> Attainment:
            peak = Peak(Users(agents), basis.lengths, SECONDS, think=basis.think)
            return Fleet(basis.model, peak, objectives, "round_robin", settings.seed).with_(1, seeds)

        agents = _most(lambda count, served=served: served(count, SEEDS_TO_LOCATE).met, most)  # type: ignore[misc]
        watts = None
        if agents and joules_per_token is not None:
            watts = joules_per_token * served(agents, SEEDS).output
        found.append(
            AgentTier(speed, agents, agents == most, agents / gpus, None if not watts else 1000 * agents / watts)
        )
    return tuple(found)


def _most(met: Callable[[int], bool], most: int) -> int:
    """The largest number up to `most` with `met`, which stays false once it is; 0 where none has."""
    if met(most):
        return most
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if met(middle) else (low, middle)
    return low
