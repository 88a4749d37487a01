"""The race: rounds in which each surviving variant runs once, until one is left. It claims nothing.

A run's log score is the effect of its variant, plus the effect of its round, which absorbs drift of the machine, plus
noise with the tails of Student's t with four degrees of freedom, so an outlying run weighs little. The fit iterates the
weights of that distribution (Lange, Little and Taylor 1989, doi:10.2307/2290063). After each round the worse half of
the survivors is dropped (successive halving, Karnin, Koren and Somekh 2013), or the worst quarter if few are left, and
so are hopeless variants.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

TAILS = 4.0  # degrees of freedom of the noise
ITERATIONS = 20
MIN_CHANCE = 0.01  # a variant with a smaller probability of being better than the leader is dropped
USUAL_SPREAD, PRIOR = 0.04, 4  # assumed spread between runs, and the degrees of freedom that it counts for
HALVED_ABOVE = 10  # survivors; with fewer, a round drops a quarter
FINALISTS, MIN_RUNS = 3, 4  # the leader of the last three wins once each of them has four runs
Round = Mapping[str, float]  # log score by variant


@dataclass(frozen=True, slots=True)
class Standing:
    """`effect` is the variant's log score in an average round, with its standard error. `chance` is the probability
    that the variant is better than the leader."""

    variant: str
    effect: float
    error: float
    chance: float
    runs: int


@dataclass(frozen=True, slots=True)
class Fit:
    """`standings` are in order, the leader first. `spread` is the noise of one run, as a share, and rests on `freedom`
    degrees of freedom."""

    standings: tuple[Standing, ...]
    spread: float
    freedom: int


def fit(rounds: Sequence[Round], variants: Collection[str]) -> Fit:
    """Fit the effects of the variants that have a run. Each round shares a variant with another round."""
    rounds = [kept for scores in rounds if (kept := {name: scores[name] for name in variants if name in scores})]
    names = [name for name in variants if any(name in scores for scores in rounds)]
    values = np.array([[scores.get(name, math.nan) for name in names] for scores in rounds])
    observed = ~np.isnan(values)
    values = np.where(observed, values, 0.0)
    weights = observed.astype(np.float64)
    effects = np.zeros(len(names))
    freedom = int(observed.sum()) - len(names) - len(rounds) + 1 + PRIOR
    spread = USUAL_SPREAD
    for _ in range(ITERATIONS):
        for _ in range(2):  # rounds given variants, then variants given rounds
            levels = (weights * (values - effects)).sum(1) / weights.sum(1)
            effects = (weights * (values - levels[:, None])).sum(0) / weights.sum(0)
        residuals = np.where(observed, values - effects - levels[:, None], 0.0)
        spread = math.sqrt((float((weights * residuals**2).sum()) + PRIOR * USUAL_SPREAD**2) / freedom)
        weights = observed * (TAILS + 1) / (TAILS + (residuals / spread) ** 2)
    errors = spread / np.sqrt(weights.sum(0))
    order = sorted(range(len(names)), key=lambda k: (-effects[k], names[k]))
    leader = order[0]
    standings = []
    for k in order:
        behind = (effects[k] - effects[leader]) / math.hypot(errors[k], errors[leader])
        chance = float(special.stdtr(freedom, behind))
        standings.append(Standing(names[k], float(effects[k]), float(errors[k]), chance, int(observed[:, k].sum())))
    return Fit(tuple(standings), spread, freedom)


def survivors(current: Fit, left: Collection[str]) -> list[str]:
    """Return which variants of `left` (at least two) run in the next round, the leader first; one alone has won."""
    ranked = [standing for standing in current.standings if standing.variant in left]
    kept = math.ceil(len(ranked) / 2) if len(ranked) > HALVED_ABOVE else len(ranked) - max(1, len(ranked) // 4)
    if len(ranked) <= FINALISTS:
        kept = len(ranked) if min(standing.runs for standing in ranked) < MIN_RUNS else 1
    # A variant with one run stays whatever its chance: the run may be an outlier.
    following = [standing for standing in ranked[1:kept] if standing.runs == 1 or standing.chance >= MIN_CHANCE]
    return [standing.variant for standing in (ranked[0], *following)]
