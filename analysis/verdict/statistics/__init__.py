"""Numbers with their spread: each with a 95 % interval, or the reason why it has none. See docs/statistics.md.

estimate.py    the number and its interval; exact percentiles
dependence.py  the standard error of a mean whose values are correlated in time and by user
tails.py       how many independent requests a tail is worth
intervals.py   percentiles, shares and rates of one window
repeats.py     ratios of engines over repeated runs, and who won
differences.py tests, effect sizes and spread of two groups of runs
steadiness.py  initial transient, trend, users in lock step

How often the intervals hold is simulated:  make simulations
"""

from analysis.verdict.statistics.differences import Difference, Spread, compare_runs, spread
from analysis.verdict.statistics.estimate import (
    CONFIDENCE,
    Estimate,
    Floats,
    interval_ranks,
    least_samples,
    percentile,
)
from analysis.verdict.statistics.intervals import (
    DEPENDS_ON_CUT_OFF,
    IN_CYCLES,
    Answer,
    bin_by_user,
    bin_events,
    objective_answer,
    percentile_intervals,
    rate_interval,
    share_interval,
)
from analysis.verdict.statistics.repeats import (
    REPEATS,
    Ranking,
    chance_error,
    holm,
    ratio_interval,
    ratio_test,
    repeats_interval,
    t_test,
    winner,
)
from analysis.verdict.statistics.steadiness import LOCK_STEP, lock_step, steadiness
from analysis.verdict.statistics.tails import needed

__all__ = [
    "CONFIDENCE",
    "DEPENDS_ON_CUT_OFF",
    "IN_CYCLES",
    "LOCK_STEP",
    "REPEATS",
    "Answer",
    "Difference",
    "Estimate",
    "Floats",
    "Ranking",
    "Spread",
    "bin_by_user",
    "bin_events",
    "chance_error",
    "compare_runs",
    "holm",
    "interval_ranks",
    "least_samples",
    "lock_step",
    "needed",
    "objective_answer",
    "percentile",
    "percentile_intervals",
    "rate_interval",
    "ratio_interval",
    "ratio_test",
    "repeats_interval",
    "share_interval",
    "spread",
    "steadiness",
    "t_test",
    "winner",
]
