"""The formulas of enginebench/records/metrics.py as Polars expressions: each metric of a request as a column."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import polars as pl

from enginebench.records.formula import (
    Above,
    Between,
    ByOutcome,
    Constant,
    Difference,
    Field,
    FirstOf,
    Formula,
    Is,
    Known,
    Longest,
    Not,
    Positive,
    Quotient,
    When,
)
from enginebench.records.metrics import REQUEST_METRICS
from enginebench.records.request import CENSORED, UNJUDGED
from enginebench.records.stage import SECOND


@cache  # every window needs the same formulas
def expression(formula: Formula) -> pl.Expr:
    """Compute for a column what `records.formula.reader` computes for one request; null if a part is missing."""
    match formula:
        case Field(name):
            return pl.col(name)
        case Between(start, end):
            return (expression(end) - expression(start)) / SECOND
        case Difference(left, right):
            return expression(left) - expression(right)
        case Quotient(top, bottom):
            return expression(top) / expression(bottom)
        case Positive(operand):
            return pl.when(expression(operand) > 0).then(expression(operand))
        case FirstOf(first, second):
            return pl.coalesce(expression(first), expression(second))
        case Constant(value):
            return pl.lit(value, pl.Float64)
        case Longest(field):
            return pl.col(field).list.max() / SECOND
        case Is(field, wanted):
            return pl.col(field).eq_missing(wanted).cast(pl.Float64)
        case Known(operand):
            return expression(operand).is_not_null().cast(pl.Float64)
        case Above(operand, limit):
            return (expression(operand) > limit).fill_null(False).cast(pl.Float64)
        case Not(flag):
            return 1.0 - expression(flag)
        case When(flag, operand):
            return pl.when(expression(flag) == 1).then(expression(operand))
        case ByOutcome(ok, cut_off, failed):
            outcome = pl.col("outcome")
            ended = (
                pl.when(outcome == "ok").then(expression(ok)).when(outcome.is_in(CENSORED)).then(expression(cut_off))
            )
            return ended.when(~outcome.is_in(UNJUDGED)).then(expression(failed))
    raise AssertionError(f"not a formula: {formula!r}")


def columns_of(formulas: Iterable[Formula]) -> set[str]:
    """Return the names of the columns that the formulas are computed from."""
    return {name for formula in formulas for name in expression(formula).meta.root_names()}


def metric_columns() -> dict[str, pl.Expr]:
    """Return the column of each metric by name, in the metric's unit."""
    return {metric.name: expression(metric.formula) for metric in REQUEST_METRICS}
