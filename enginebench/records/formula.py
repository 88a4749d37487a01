"""Formulas as values: written once, computed for one record by `reader` and for columns by the analysis.

    TTFT = Between(Field("t_send"), Field("t_first"))
    NTPOT = Between(Field("t_send"), Field("t_last")) / Positive(Field("output_tokens"))

An operand that was not observed makes the whole formula `None`.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from msgspec import Struct

from enginebench.records.request import CENSORED, UNJUDGED
from enginebench.records.stage import SECOND


class Formula(Struct, frozen=True):
    """Arithmetic on formulas makes formulas."""

    def __sub__(self, other: Formula) -> Formula:
        return Difference(self, other)

    def __truediv__(self, divisor: Positive) -> Formula:
        return Quotient(self, divisor)


class Field(Formula, frozen=True):
    name: str

    def __str__(self) -> str:
        return self.name


class Between(Formula, frozen=True):
    """Seconds from one stamp to another."""

    start: Formula
    end: Formula

    def __str__(self) -> str:
        return f"{self.end} − {_enclosed(self.start)}"


class Difference(Formula, frozen=True):
    left: Formula
    right: Formula

    def __str__(self) -> str:
        return f"{self.left} − {_enclosed(self.right)}"


class Quotient(Formula, frozen=True):
    """A quotient. The divisor must be `Positive`, which prevents division by zero."""

    top: Formula
    bottom: Positive

    def __str__(self) -> str:
        return f"{_enclosed(self.top)} ÷ {_enclosed(self.bottom.operand)}"


class Positive(Formula, frozen=True):
    """The operand if it is above zero, else `None`."""

    operand: Formula

    def __str__(self) -> str:
        return str(self.operand)


class FirstOf(Formula, frozen=True):
    """The first operand that was observed."""

    first: Formula
    second: Formula

    def __str__(self) -> str:
        return f"{self.first}, else {self.second}"


class Constant(Formula, frozen=True):
    value: float

    def __str__(self) -> str:
        return f"{self.value:g}"


class Longest(Formula, frozen=True):
    """The longest gap in seconds of `field`, a list of nanoseconds; null if the list is empty."""

    field: str

    def __str__(self) -> str:
        return f"max({self.field})"


# Flags: 1 or 0, never `None`.


class Is(Formula, frozen=True):
    """1 if the record's `field` equals `value`."""

    field: str
    value: str | int | bool

    def __str__(self) -> str:
        return f"{self.field} = {self.value}"


class Known(Formula, frozen=True):
    """1 if the operand was observed."""

    operand: Formula

    def __str__(self) -> str:
        return f"{_enclosed(self.operand)} known"


class Above(Formula, frozen=True):
    """1 if the operand was observed and is more than `limit`."""

    operand: Formula
    limit: float

    def __str__(self) -> str:
        return f"{_enclosed(self.operand)} > {self.limit:g}"


class Not(Formula, frozen=True):
    """1 if a flag is 0."""

    flag: Formula

    def __str__(self) -> str:
        return f"not {_enclosed(self.flag)}"


class When(Formula, frozen=True):
    """The operand if the flag is 1, else `None`."""

    flag: Formula
    operand: Formula

    def __str__(self) -> str:
        return f"{self.operand}, where {self.flag}"


class ByOutcome(Formula, frozen=True):
    """A formula each for requests that ended `ok`, were `cut_off`, or failed; `unsent` requests have no value."""

    ok: Formula
    cut_off: Formula
    failed: Formula

    def __str__(self) -> str:
        return f"ok: {self.ok}; cut off: {self.cut_off}; failed: {self.failed}"


NOTHING = Positive(Constant(0.0))


def _enclosed(formula: Formula) -> str:
    inner = formula.operand if isinstance(formula, Positive) else formula
    return str(inner) if isinstance(inner, Field) else f"({inner})"


Reader = Callable[[Any], float | None]


def reader(formula: Formula) -> Reader:
    """Return a function that computes the formula for one record: any object with the fields as attributes.

    The value is `None` if a part of the formula was not observed.
    """
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
            return _binary(start, end, lambda start, end: (end - start) / SECOND)
        case Difference(left, right):
            return _binary(left, right, lambda left, right: left - right)
        case Quotient(top, bottom):
            return _binary(top, bottom, lambda top, bottom: top / bottom)
        case FirstOf(first, second):
            read_first, read_second = reader(first), reader(second)
            return lambda record: read_second(record) if (value := read_first(record)) is None else value
        case ByOutcome(ok, cut_off, failed):
            return _by_outcome(reader(ok), reader(cut_off), reader(failed))
        case Known(operand):
            return _unary(operand, lambda value: float(value is not None))
        case Above(operand, limit):
            return _unary(operand, lambda value: float(value is not None and value > limit))
        case Positive(operand):
            return _unary(operand, lambda value: value if value is not None and value > 0 else None)
        case Not(flag):
            return _unary(flag, lambda value: float(value == 0))
        case When(flag, operand):
            read_flag, read_value = reader(flag), reader(operand)
            return lambda record: read_value(record) if read_flag(record) == 1 else None
    raise AssertionError(f"not a formula: {formula!r}")


def _unary(formula: Formula, compute: Callable[[float | None], float | None]) -> Reader:
    read = reader(formula)
    return lambda record: compute(read(record))


def _binary(left: Formula, right: Formula, combine: Callable[[float, float], float]) -> Reader:
    read_left, read_right = reader(left), reader(right)

    def read(record: Any) -> float | None:
        first, second = read_left(record), read_right(record)
        return None if first is None or second is None else combine(first, second)

    return read


def _by_outcome(ok: Reader, cut_off: Reader, failed: Reader) -> Reader:
    def read(record: Any) -> float | None:
        if record.outcome == "ok":
            return ok(record)
        if record.outcome in CENSORED:
            return cut_off(record)
        return failed(record) if record.outcome not in UNJUDGED else None

    return read
