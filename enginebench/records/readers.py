"""From formulas to functions that compute them for one record: any object with the fields as attributes."""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from enginebench.records.formula import (
    Above,
    Below,
    Between,
    Both,
    ByOutcome,
    Constant,
    Difference,
    Either,
    Field,
    FirstOf,
    Formula,
    Is,
    Known,
    Longest,
    Magnitude,
    Not,
    Positive,
    Quotient,
    When,
)
from enginebench.records.stage import SECOND

Reader = Callable[[Any], float | None]


def reader(formula: Formula) -> Reader:
    """Gives the formula's value for one record; `None` if a part of it was not observed."""
    match formula:
        case Field(field):
            return attrgetter(field)
        case Constant(value):
            return lambda record: value
        case Longest(field):
            return lambda record: max(gaps) / SECOND if (gaps := getattr(record, field)) else None
        case Is(field, wanted):
            return lambda record: float(getattr(record, field) == wanted)
        case Between(start, end):
            return _of_two(start, end, lambda start, end: (end - start) / SECOND)
        case Difference(left, right):
            return _of_two(left, right, lambda left, right: left - right)
        case Quotient(top, bottom):
            return _of_two(top, bottom, lambda top, bottom: top / bottom)
        case FirstOf(first, second):
            return _first_of(reader(first), reader(second))
        case ByOutcome(ok, cut_off, failed):
            return _by_outcome(reader(ok), reader(cut_off), reader(failed))
        case Both(one, other):
            return _of_two(one, other, min)
        case Either(one, other):
            return _of_two(one, other, max)
        case Known(of):
            return _of_one(of, lambda value: float(value is not None))
        case Below(of, limit):
            return _of_one(of, lambda value: float(value is not None and value < limit))
        case Above(of, limit):
            return _of_one(of, lambda value: float(value is not None and value > limit))
        case Positive(of):
            return _of_one(of, lambda value: value if value is not None and value > 0 else None)
        case Magnitude(of):
            return _of_one(of, lambda value: None if value is None else math.fabs(value))
        case Not(flag):
            return _of_one(flag, lambda value: float(value == 0))
        case When(flag, of):
            return _when(reader(flag), reader(of))
    raise AssertionError(f"not a formula: {formula!r}")


def _of_one(formula: Formula, compute: Callable[[float | None], float | None]) -> Reader:
    read = reader(formula)
    return lambda record: compute(read(record))


def _of_two(one: Formula, other: Formula, combine: Callable[[float, float], float]) -> Reader:
    read_one, read_other = reader(one), reader(other)

    def read(record: Any) -> float | None:
        first, second = read_one(record), read_other(record)
        return None if first is None or second is None else combine(first, second)

    return read


def _first_of(first: Reader, second: Reader) -> Reader:
    return lambda record: second(record) if (value := first(record)) is None else value


def _when(flag: Reader, of: Reader) -> Reader:
    return lambda record: of(record) if flag(record) == 1 else None


def _by_outcome(ok: Reader, cut_off: Reader, failed: Reader) -> Reader:
    def read(record: Any) -> float | None:
        if record.outcome == "ok":
            return ok(record)
        if record.outcome == "cut_off":
            return cut_off(record)
        return failed(record) if record.outcome != "unsent" else None

    return read
