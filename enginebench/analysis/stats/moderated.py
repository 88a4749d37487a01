"""Many t tests on the same few runs, which lend one another what each lacks: knowledge of its variance.

Three runs tell little of a variance, and a test that is corrected for forty others is far out in the tail, where that
decides. But all checks of a gate were measured in the same runs, and their variances have much in common: each is
averaged with what all of them have in common (empirical Bayes: Smyth 2004, *Linear models and empirical Bayes methods
for assessing differential expression*). How much they have in common is estimated too, so that metrics of which each
varies in its own way are tested nearly one by one.
"""

from __future__ import annotations

import numpy as np
from scipy import special

from enginebench.analysis.arrays import Floats
from enginebench.analysis.stats.estimate import TAIL
from enginebench.analysis.stats.repeats import ROUNDING

LEAST_TESTS = 8  # from which anything can be said of what variances have in common
MOST_PRIOR = 4.0  # degrees of freedom that are lent at most: what is shared by all checks is seen only once
CAUTION = 4.0  # times p: variances are not distributed as assumed. Gates of simulated runs keep their level with it
_GRID = np.geomspace(0.02, MOST_PRIOR, 256)
_TRIGAMMA = special.polygamma(1, _GRID / 2)


def moderated_tests(ours: Floats, theirs: Floats) -> tuple[Floats, Floats]:
    """Of each row the two-sided p, and half the width of the 95 % interval of the difference: the mean of `ours` minus
    that of `theirs`, a row for each test and a column for each run; logarithms, at least `LEAST_TESTS` rows and two
    columns. The interval holds 0 where p is above 5 %.

    Welch's (1947) statistic with moderated variances, which are never below a group's own. Satterthwaite's degrees of
    freedom follow from the ratio of the two variances, which is estimated from so few runs too; where one version
    varies more than the other in all its metrics, they are those of the median ratio, if these are fewer.
    """
    (our_error, our_freedom), (their_error, their_freedom) = _squared_errors(ours), _squared_errors(theirs)
    ratios = our_error / their_error
    middle = np.full_like(ratios, np.exp(np.median(np.log(ratios))))
    by_row, at_middle = (_freedom(each, our_freedom, their_freedom) for each in (ratios, middle))
    freedom, error = np.minimum(by_row, at_middle), np.sqrt(our_error + their_error)
    t = (ours.mean(axis=1) - theirs.mean(axis=1)) / error
    p: Floats = np.minimum(CAUTION * 2 * special.stdtr(freedom, -np.abs(t)), 1.0)
    half: Floats = special.stdtrit(freedom, 1 - TAIL / CAUTION) * error
    return p, half


def _freedom(ratio: Floats, our_freedom: float, their_freedom: float) -> Floats:
    """Satterthwaite (1946), of a sum of two variances with that ratio."""
    result: Floats = (ratio + 1) ** 2 / (ratio**2 / our_freedom + 1 / their_freedom)
    return result


def _squared_errors(runs: Floats) -> tuple[Floats, float]:
    """The squared standard error of each row's mean, and its degrees of freedom."""
    own = runs.shape[1] - 1
    variances = np.maximum(runs.var(axis=1, ddof=1), ROUNDING**2)
    varying = variances > ROUNDING**2
    if varying.sum() < LEAST_TESTS:
        return variances / runs.shape[1], float(own)
    logs = np.log(variances[varying]) - special.digamma(own / 2) + np.log(own / 2)
    beyond_chance = max(float(logs.var(ddof=1)) - float(special.polygamma(1, own / 2)), float(_TRIGAMMA[-1]))
    prior = float(np.interp(-beyond_chance, -_TRIGAMMA, _GRID))
    common = np.exp(logs.mean() + special.digamma(prior / 2) - np.log(prior / 2))
    moderated = (prior * common + own * variances) / (prior + own)
    return np.maximum(moderated, variances) / runs.shape[1], prior + own
