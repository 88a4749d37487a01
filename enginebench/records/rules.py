"""The rules that turn requests into numbers and verdicts. Each rule is declared once, for single values; the analysis
applies formulas to whole columns.

* A failed request counts as +∞ in everything that is judged over attempted requests.
* A request that the run's end cut off is censored: observed times count, unobserved ones have a lower bound.
* A percentile is the nearest rank, always an observed value.
* A request meets an objective, misses it, or was cut off too early to tell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, Protocol

from enginebench.records.formula import (
    NOTHING,
    Above,
    Between,
    ByOutcome,
    Constant,
    Field,
    FirstOf,
    Formula,
    Known,
    Not,
    When,
)
from enginebench.records.request import NO_FAILURE

MARGIN = 1.05  # practical significance: a smaller ratio is no reason to change engines
SIGNIFICANCE = 0.05  # chance of a difference between equal engines, after correction, above which it is not significant
MAX_FAILURE_SHARE = 0.05  # share of failed requests above which a stage is no evidence that a load can be served

SloAnswer = Literal["met", "missed", "not confirmed"]
UNDECIDED: SloAnswer = "not confirmed"


def is_failure(outcome: str) -> bool:
    """Return whether an outcome is neither `ok` nor one of `UNJUDGED`."""
    return outcome not in NO_FAILURE


def nearest_rank(n: int, q: float) -> int:
    """Return the rank, from 1 to n, of percentile q of n values: ceil(q·n) (Hyndman & Fan 1996, definition 1).

    q·n is rounded first, because 0.95 · 20 is a hair above 19 in binary.
    """
    return min(max(math.ceil(round(q * n, 9)), 1), n)


class Ascending(Protocol):
    """Values in order: a list, or an array."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


def percentile(ascending: Ascending, q: float) -> float:
    """Return the nearest-rank percentile of ascending values, for q in (0, 1]: the smallest value that at least a share
    q of the values do not exceed."""
    return float(ascending[nearest_rank(len(ascending), q) - 1])


def lower_bound(formula: Formula) -> tuple[Formula, Formula]:
    """Return the value or lower bound of a request that was stopped at `t_end`, and 1 if it is a bound.

    The stamp of an event that had not happened is after `t_end`, and so is `t_last`, because chunks could follow. The
    speed of a stopped answer is unknown, so quotients are null.
    """
    match formula:
        case Between(start, Field("t_last")):
            return Between(start, Field("t_end")), Constant(1.0)
        case Between(start, Field(end)):
            return Between(start, FirstOf(Field(end), Field("t_end"))), Not(Known(Field(end)))
    return NOTHING, Constant(1.0)


def attempted(formula: Formula) -> Formula:
    """Return the value of a request among all attempted ones: +∞ if it failed, the lower bound if it was cut off."""
    bound, _ = lower_bound(formula)
    return ByOutcome(ok=formula, cut_off=bound, failed=Constant(math.inf))


def censored(formula: Formula) -> Formula:
    """Return a formula that is 1 if the value of `attempted` is only a lower bound."""
    _, is_bound = lower_bound(formula)
    return ByOutcome(ok=Constant(0.0), cut_off=is_bound, failed=Constant(0.0))


def within(formula: Formula | None, limit: float, needs: str | None = None, absent_is_good: bool = False) -> Formula:
    """Return a formula that is 1 if a request meets the limit, 0 if it misses it, null if it was cut off before.

    Without a formula, every successful request meets the limit. A successful request without a value meets it if
    `absent_is_good`; the result is null if its field `needs` was not observed.
    """
    if formula is None:
        return ByOutcome(ok=Constant(1.0), cut_off=NOTHING, failed=Constant(0.0))
    absent: Formula = Constant(float(absent_is_good))
    if needs is not None:
        absent = When(Known(Field(needs)), absent)
    bound, is_bound = lower_bound(formula)
    return ByOutcome(
        ok=FirstOf(When(Known(formula), Not(Above(formula, limit))), absent),
        cut_off=FirstOf(When(Above(bound, limit), Constant(0.0)), When(Not(is_bound), Constant(1.0))),
        failed=Constant(0.0),
    )


def as_measured(good: int, unknown: int, n: int, q: float) -> bool | None:
    """Return whether percentile q of n requests is within a limit that `good` requests met; `None` if that depends on
    the `unknown` requests."""
    rank = nearest_rank(n, q)
    if good >= rank:
        return True
    return False if good + unknown < rank else None


def answer_of(low: float | None, high: float | None, q: float) -> SloAnswer:
    """Decide from the interval of the share of requests within the limit whether that share is at least q."""
    if low is not None and low >= q:
        return "met"
    return "missed" if high is not None and high < q else UNDECIDED


def overall(answers: Sequence[SloAnswer]) -> SloAnswer:
    """Return missed if one objective is missed, met if all are met."""
    if "missed" in answers:
        return "missed"
    return "met" if answers and set(answers) == {"met"} else UNDECIDED
