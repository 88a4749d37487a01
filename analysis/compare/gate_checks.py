"""Has anything become worse? Every measure of every stage, current runs against a baseline's.

A regression is critical when the point estimate is worse by more than 20 % and its interval excludes zero. Many
measures are judged at once, so the intervals are simultaneous (Bonferroni): that any of them lies above zero by chance
has a probability of at most 1 %, over the whole gate. `make simulations` checks that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from analysis.settings import CRITICAL
from analysis.stats.differences import Spread, spread
from records.view import Estimate
from analysis.stats.repeats import REPEATS, ratio_test, t_test
from settings.schema import UserMistake

FALSE_ALARMS = 0.01  # chance that a gate between identical versions fails, over all its measures
WARNING = 0.1  # worse by more than this, as a share of the baseline; from `CRITICAL` on a gate fails
POINTS = 0.1  # of shares (failures, attainment) a tenth of the limits counts, in points: 2 and 1 percentage points

Severity = Literal["critical", "warning", "unclear", "ok"]
"""`unclear`: worse by more than a limit, and the interval does not exclude chance; or a percentile that falls among the
failed requests in some of the runs."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One measure at one stage: a value for each run of either version."""

    engine: str
    stage: str
    measure: str
    title: str
    unit: str
    better: Literal["higher", "lower"]
    relative: bool  # worse as a share of the baseline; else in points, for what may be 0
    baseline: tuple[float, ...]
    current: tuple[float, ...]
    least_error: float = 0.0  # of their difference, however alike the runs are


@dataclass(frozen=True, slots=True)
class Check:
    """`worse` is by how much the current runs are worse: 0.25 is 25 % of the baseline, or 25 points of a share;
    negative is an improvement. Its interval holds together with those of all other checks."""

    sample: Sample
    baseline: Spread
    current: Spread
    worse: Estimate
    severity: Severity

    @property
    def certain(self) -> bool:
        """Worse by more than a limit, beyond chance."""
        return self.severity in {"critical", "warning"}

    @property
    def size(self) -> float:
        """By how much it is worse, as the limits count it: points of a share count ten times."""
        return 0.0 if self.worse.value is None else self.worse.value / (1.0 if self.sample.relative else POINTS)


def decide(samples: Sequence[Sample], warning: float = WARNING) -> tuple[Check, ...]:
    """The gravest first. Raises `UserMistake` where a measure has too few runs to judge."""
    few = [one for one in samples if min(len(one.baseline), len(one.current)) < REPEATS]
    if few:
        runs = f"{len(few[0].baseline)} in the baseline and {len(few[0].current)} to judge"
        raise UserMistake(f"a gate needs {REPEATS} runs of each, better 5; {few[0].engine} has {runs}.")
    confidence = 1 - 2 * FALSE_ALARMS / max(len(samples), 1)  # only the lower ends can make a gate fail
    checks = [_check(one, confidence, warning) for one in samples]
    order: dict[Severity, int] = {"critical": 0, "warning": 1, "unclear": 2, "ok": 3}
    return tuple(sorted(checks, key=lambda check: (order[check.severity], -check.size)))


def _check(one: Sample, confidence: float, warning: float) -> Check:
    worse = _worse(one, confidence)
    check = Check(one, spread(one.baseline), spread(one.current), worse, "ok")
    if worse.value is None and one.current.count(math.inf) > one.baseline.count(math.inf):
        return replace(check, severity="unclear")
    if check.size <= warning:
        return check
    if worse.low is None or worse.low <= 0:
        return replace(check, severity="unclear")
    return replace(check, severity="critical" if check.size > CRITICAL else "warning")


def _worse(one: Sample, confidence: float) -> Estimate:
    """From the ratio where values are above zero, else from the difference."""
    n, infinite = len(one.current), [math.inf in side for side in (one.baseline, one.current)]
    if any(infinite):  # a percentile among failed requests
        certain = min(one.current) == math.inf and not infinite[0]
        return Estimate(math.inf, math.inf, math.inf, n) if certain else Estimate(None, n=n, why="failed requests")
    ratio, _ = ratio_test(one.current, one.baseline, False, confidence)
    if one.relative and ratio.value is not None:
        shares = [None if bound is None else bound - 1 for bound in (ratio.value, ratio.low, ratio.high)]
    else:
        level = float(np.mean(one.baseline)) if one.relative else 1.0
        if level == 0:
            return Estimate(None, n=n, why="the baseline is 0")
        sides = np.array(one.current), np.array(one.baseline)
        difference, _ = t_test(*sides, False, confidence, one.least_error)
        if not one.relative:
            difference = difference.within(-1, 1)
        bounds = (difference.value, difference.low, difference.high)
        shares = [None if bound is None else bound / level for bound in bounds]
    value, low, high = shares if one.better == "lower" else _negated(shares)
    return Estimate(value, low, high, n)


def _negated(shares: Sequence[float | None]) -> list[float | None]:
    value, low, high = (None if share is None else -share for share in shares)
    return [value, high, low]
