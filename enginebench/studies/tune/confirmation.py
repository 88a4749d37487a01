"""The confirmation: the race's winner against the default, in fresh rounds of the two, with at most four looks.

The differences of the two log scores in a round are symmetric if the variants are equal, because their order is random.
So Wilcoxon's signed-rank test is exact, and an outlying run has no more weight than its rank. The interval of the ratio
contains the values that the test does not reject; its centre is the median of the means of any two differences
(Hodges and Lehmann 1963, doi:10.1214/aoms/1177704172). Four looks with equal errors (Pocock 1977,
doi:10.1093/biomet/64.2.191) make a false claim in at most the sum of the four.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from enginebench.analysis.answer import TuneOutcome
from enginebench.records.view import NO_SAMPLES, Estimate

LOOKS = (7, 10, 20, 30)  # pairs of runs
ERROR = 0.01  # chance of a false claim at each look
FAR = 0.8  # share of a look's error for the interval's upper end, which no claim depends on
BOUNDARY = -float(special.ndtri(ERROR))  # in standard errors
POWER = float(special.ndtri(0.9))  # standard errors for a 90 % chance to find an advantage in a further confirmation
MIN_PROSPECT = 0.05  # a smaller probability of success at the last look ends the confirmation
MAX_MORE = 150  # rounds: an advantage that needs more counts as none


@dataclass(frozen=True, slots=True)
class Confirmation:
    """`ratio` is the variant's score to the default's, with the interval of the last look. A fresh confirmation needs
    about `more` rounds."""

    outcome: TuneOutcome
    ratio: Estimate = NO_SAMPLES
    more: int | None = None


NOT_BEGUN = Confirmation(TuneOutcome.OPEN)


def confirm(differences: Sequence[float], spread: float) -> Confirmation:
    """Judge the differences of log scores, variant minus default, at one of the looks. `spread` comes from the race, so
    it is fixed before the first pair."""
    n, scale = len(differences), spread * math.sqrt(2)
    rows, columns = np.triu_indices(n)
    values = np.asarray(differences)
    means = np.sort((values[rows] + values[columns]) / 2)
    advantage = float(np.median(means))
    low, high = float(means[_rejected(n, ERROR) - 1]), float(means[-_rejected(n, FAR * ERROR)])
    ratio = Estimate(math.exp(advantage), math.exp(low), math.exp(high), n)
    if low > 0:
        return Confirmation(TuneOutcome.CONFIRMED, ratio)
    share = n / LOOKS[-1]
    if share < 1:
        z = advantage * math.sqrt(n) / scale
        prospect = float(special.ndtr((z / math.sqrt(share) - BOUNDARY) / math.sqrt(1 - share)))
        return Confirmation(TuneOutcome.NONE if prospect < MIN_PROSPECT else TuneOutcome.OPEN, ratio)
    more = math.ceil((scale * (BOUNDARY + POWER) / advantage) ** 2) if advantage > 0 else MAX_MORE + 1
    if more > MAX_MORE:
        return Confirmation(TuneOutcome.NONE, ratio)
    return Confirmation(TuneOutcome.NOT_CONFIRMED, ratio, more)


def _rejected(n: int, error: float) -> int:
    """Return how many of the smallest signed-rank sums of `n` differences have a probability of at most `error`."""
    ways = np.ones(1)  # number of ways to get each sum, over all signs
    for rank in range(1, n + 1):
        ways = np.pad(ways, (0, rank)) + np.pad(ways, (rank, 0))
    return int((ways.cumsum() <= error * 2.0**n).sum())
