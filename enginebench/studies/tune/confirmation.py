"""The confirmation: the race's winner against the default, in fresh rounds of the two, with at most three looks.

The test flips the signs of the pairs' log ratios, which are symmetric if the two are equal because their order in a
round is random; an outlying pair counts little by its score, that of Student's t with four degrees of freedom. Three
looks with these errors make a false claim in less than 4 %, the sum of the three (equal errors at equal distances:
Pocock 1977, doi:10.1093/biomet/64.2.191). The number of pairs and the spread are those of the race, and fixed before
the first pair.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from enginebench.analysis.answer import TuneOutcome
from enginebench.records.view import Estimate
from enginebench.studies.tune.race import ITERATIONS, TAILS

ERRORS = (1 / 64, 0.012, 0.012)  # of each look; six pairs of equal sign have p = 1/64
LOOKS = len(ERRORS)
FAR = 0.5  # share of a look's error for the interval's upper end, which no claim depends on
BOUNDARY = -float(special.ndtri(ERRORS[-1]))  # the last look's error in standard errors
MIN_PAIRS, MAX_PAIRS = 6, 12  # for each look
WORTHWHILE = 0.05  # the advantage for which the number of pairs is planned
POWER = float(special.ndtri(0.9))  # of finding it
MIN_PROSPECT = 0.05  # a smaller probability of confirming at the last look ends it
MAX_MORE = 150  # rounds: an advantage that needs more of them is none
FLIPS = 4096
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Confirmation:
    """`ratio` is the variant's score to the default's, with the interval of the last look. `more` is about how many
    rounds are missing."""

    outcome: TuneOutcome
    ratio: Estimate
    more: int | None = None


def pairs_for(spread: float) -> int:
    """Return the number of pairs for each look, given the race's spread from run to run."""
    total = (spread * math.sqrt(2) * (BOUNDARY + POWER) / WORTHWHILE) ** 2
    return min(max(math.ceil(total / LOOKS), MIN_PAIRS), MAX_PAIRS)


def confirm(differences: Sequence[float], spread: float, pairs: int) -> Confirmation:
    """Judge the differences of log scores, variant minus default, in the order of their rounds."""
    scale = spread * math.sqrt(2)
    done = min(len(differences) // pairs, LOOKS)
    ratio = Estimate(None)
    for look, error in enumerate(ERRORS[:done], 1):
        seen = np.array(differences[: look * pairs])
        ratio = _ratio(seen, scale, error)
        if _p_value(seen, scale) <= error:
            return Confirmation(TuneOutcome.CONFIRMED, ratio)
        advantage = _location(seen, scale)
        z = advantage * math.sqrt(len(seen)) / scale
        share = look / LOOKS
        if look < LOOKS:
            prospect = float(special.ndtr((z / math.sqrt(share) - BOUNDARY) / math.sqrt(1 - share)))
            if prospect < MIN_PROSPECT:
                return Confirmation(TuneOutcome.NONE, ratio)
            continue
        more = _more(advantage, scale)
        outcome = TuneOutcome.NONE if more is None else TuneOutcome.NOT_CONFIRMED
        return Confirmation(outcome, ratio, more)
    return Confirmation(TuneOutcome.OPEN, ratio, (done + 1) * pairs - len(differences))


def _more(advantage: float, scale: float) -> int | None:
    """Return the pairs with which a fresh confirmation would most likely find this advantage; `None` for too many."""
    if advantage <= 0:
        return None
    pairs = math.ceil((scale * (BOUNDARY + POWER) / advantage) ** 2)
    return pairs if pairs <= MAX_MORE else None


def _score(differences: Floats, scale: float) -> Floats:
    x = differences / scale
    scores: Floats = x * (TAILS + 1) / (TAILS + x**2)
    return scores


def _location(differences: Floats, scale: float) -> float:
    """Return the location at which the scores sum to zero, near the median."""
    center = float(np.median(differences))
    for _ in range(ITERATIONS):
        weights = 1 / (TAILS + ((differences - center) / scale) ** 2)
        center = float((weights * differences).sum() / weights.sum())
    return center


@cache
def _signs(n: int) -> NDArray[Any]:
    """Return all combinations of signs, or that number of random ones; the first changes none."""
    if 2**n <= FLIPS:
        return 1.0 - 2.0 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
    signs = np.random.default_rng(n).choice([-1.0, 1.0], (FLIPS, n))
    signs[0] = 1.0
    return signs


def _p_value(differences: Floats, scale: float) -> float:
    """Return the share of flips with a sum of scores at least as large: small if the location is above zero."""
    scores = _score(differences, scale)
    sums = _signs(len(scores)) @ scores
    return float((sums >= sums[0] - 1e-9).mean())


def _ratio(differences: Floats, scale: float, error: float) -> Estimate:
    """Invert the test: the interval has the ratios that neither side rejects."""
    center = _location(differences, scale)
    low = _end(differences, scale, center, error)
    high = -_end(-differences, scale, -center, FAR * error)
    return Estimate(math.exp(center), math.exp(low), math.exp(high), len(differences))


def _end(differences: Floats, scale: float, center: float, error: float) -> float:
    """Return the nearest location below `center` that the test rejects, by bisection; if there are too few pairs for
    that, one scale below the smallest difference."""
    inside, outside = center, float(differences.min()) - scale
    while inside - outside > scale / 200:
        middle = (inside + outside) / 2
        if _p_value(differences - middle, scale) <= error:
            outside = middle
        else:
            inside = middle
    return outside
