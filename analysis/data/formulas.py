"""The formulas of records/metrics.py as Polars expressions: each metric of a request as a column."""

from __future__ import annotations

import polars as pl

from records.formula import Between, Difference, Field, FirstOf, Formula, Positive, Quotient, Where
from records.metrics import REQUEST_METRICS
from records.stage import SECOND


def expression(formula: Formula) -> pl.Expr:
    """What `records.formula.reader` gives for one request, for a whole column; null where a part is missing."""
    match formula:
        case Field(name):
            return pl.col(name)
        case Between(start, end):
            return (expression(end) - expression(start)) / SECOND
        case Difference(left, right):
            return expression(left) - expression(right)
        case Quotient(top, bottom):
            return expression(top) / expression(bottom)
        case Positive(of):
            return pl.when(expression(of) > 0).then(expression(of))
        case FirstOf(first, second):
            return pl.coalesce(expression(first), expression(second))
        case Where(field, value, of):
            return pl.when(pl.col(field) == value).then(expression(of))
    raise AssertionError(f"not a formula: {formula!r}")


def metric_columns() -> dict[str, pl.Expr]:
    """Metric name → its column, in the metric's unit."""
    return {metric.name: expression(metric.formula) for metric in REQUEST_METRICS}


def lower_bound(formula: Formula) -> tuple[pl.Expr, pl.Expr]:
    """Of a request that was stopped at `t_end`: the value of the metric or its lower bound, and whether it is a bound.

    A stamp of an event that had not happened lies after `t_end`. That holds for `t_last` always: more could follow. How
    fast a stopped answer would have come is unknown: a quotient is null.
    """
    match formula:
        case Between(Field(start), Field("t_last")):
            return expression(Between(Field(start), Field("t_end"))), pl.lit(True)
        case Between(Field(start), Field(end)):
            bounded = expression(Between(Field(start), FirstOf(Field(end), Field("t_end"))))
            return bounded, pl.col(end).is_null()
    return pl.lit(None, pl.Float64), pl.lit(True)
