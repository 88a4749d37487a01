"""The trials of a simulation: what differs from one to the next."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from analysis.plan.model import EngineModel
from analysis.plan.steps import Generator


@dataclass(frozen=True, slots=True)
class Trial:
    """Random draws, and by how many standard deviations of its drift the machine is slower than usual."""

    rng: Generator
    slower: float

    def model(self, usual: EngineModel) -> EngineModel:
        return usual.slowed(self.slower)


def trials(count: int, seed: int = 0) -> list[Trial]:
    """Speeds are quantiles of the normal distribution (stratified sampling), so that few trials have its median too."""
    normal = NormalDist()
    return [Trial(np.random.default_rng([seed, k]), normal.inv_cdf((k + 0.5) / count)) for k in range(count)]
