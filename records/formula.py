"""Formulas as values: written once, computed on one request's numbers here and on whole columns by the analysis.

    TTFT = Between(Field("t_send"), Field("t_first"))
    NTPOT = Between(Field("t_send"), Field("t_last")) / Positive(Field("output_tokens"))

An operand that was not observed makes the whole formula `None`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter, sub, truediv
from typing import Any

from records.stage import SECOND


class Formula:
    """Arithmetic on formulas makes formulas."""

    __slots__ = ()

    def __sub__(self, other: Formula) -> Formula:
        return Difference(self, other)

    def __truediv__(self, divisor: Positive) -> Formula:
        return Quotient(self, divisor)


@dataclass(frozen=True, slots=True)
class Field(Formula):
    """A field of the record."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Between(Formula):
    """Seconds from one stamp to another; of several starts, the first that was observed."""

    start: Formula
    end: Formula

    def __str__(self) -> str:
        return f"{self.end} − {_enclosed(self.start)}"


@dataclass(frozen=True, slots=True)
class Difference(Formula):
    left: Formula
    right: Formula

    def __str__(self) -> str:
        return f"{self.left} − {_enclosed(self.right)}"


@dataclass(frozen=True, slots=True)
class Quotient(Formula):
    """The divisor must be `Positive`, so that nothing is divided by zero."""

    top: Formula
    bottom: Positive

    def __str__(self) -> str:
        return f"{_enclosed(self.top)} ÷ {_enclosed(self.bottom.of)}"


@dataclass(frozen=True, slots=True)
class Positive(Formula):
    """`of` where it is above zero, else nothing."""

    of: Formula

    def __str__(self) -> str:
        return str(self.of)


@dataclass(frozen=True, slots=True)
class FirstOf(Formula):
    """The first of several that was observed."""

    first: Formula
    second: Formula

    def __str__(self) -> str:
        return f"{self.first}, else {self.second}"


@dataclass(frozen=True, slots=True)
class Where(Formula):
    """`of` where the record's `field` equals `value`, else nothing."""

    field: str
    value: str
    of: Formula

    def __str__(self) -> str:
        return f"{self.of}, where {self.field} = {self.value}"


@dataclass(frozen=True, slots=True)
class Constant(Formula):
    value: float

    def __str__(self) -> str:
        return f"{self.value:g}"


@dataclass(frozen=True, slots=True)
class Longest(Formula):
    """Seconds of the longest gap in `field`, a list of nanoseconds; nothing where it is empty."""

    field: str

    def __str__(self) -> str:
        return f"max({self.field})"


@dataclass(frozen=True, slots=True)
class Missing(Formula):
    """1 where the record's `field` was not observed, else 0."""

    field: str

    def __str__(self) -> str:
        return f"{self.field} missing"


@dataclass(frozen=True, slots=True)
class AtMost(Formula):
    """1 where `of` is at most `limit`, else 0."""

    of: Formula
    limit: float

    def __str__(self) -> str:
        return f"{_enclosed(self.of)} ≤ {self.limit:g}"


@dataclass(frozen=True, slots=True)
class ZeroAbove(Formula):
    """0 where `of` is above `limit`, else nothing."""

    of: Formula
    limit: float

    def __str__(self) -> str:
        return f"0 if {_enclosed(self.of)} > {self.limit:g}"


@dataclass(frozen=True, slots=True)
class OneUnless(Formula):
    """1 where `flag` is 0, else nothing."""

    flag: Formula

    def __str__(self) -> str:
        return f"1 unless {_enclosed(self.flag)}"


@dataclass(frozen=True, slots=True)
class ByOutcome(Formula):
    """One formula for requests that ended `ok`, one for those that were `cut_off`, one for all failures. One that was
    `unsent` has no value."""

    ok: Formula
    cut_off: Formula
    failed: Formula

    def __str__(self) -> str:
        return f"ok: {self.ok}; cut off: {self.cut_off}; failed: {self.failed}"


NOTHING = Positive(Constant(0.0))
Reader = Callable[[Any], float | None]


def reader(formula: Formula) -> Reader:
    """A function that gives the formula's value for one record: any object with the fields as attributes.

    Made once for each formula. The load generator computes every metric of every request while it measures.
    """
    match formula:
        case Field(name):
            return attrgetter(name)
        case Between(start, end):
            return _of_two(reader(end), reader(start), lambda ended, begun: (ended - begun) / SECOND)
        case Difference(left, right):
            return _of_two(reader(left), reader(right), sub)
        case Quotient(top, bottom):
            return _of_two(reader(top), reader(bottom), truediv)
        case Positive(of):
            return _positive(reader(of))
        case FirstOf(first, second):
            return _first_of(reader(first), reader(second))
        case Where(field, wanted, of):
            return _where(field, wanted, reader(of))
        case Constant(value):
            return lambda record: value
        case Longest(field):
            return lambda record: max(gaps) / SECOND if (gaps := getattr(record, field)) else None
        case Missing(field):
            return lambda record: float(getattr(record, field) is None)
        case AtMost(of, limit):
            return _of_known(reader(of), lambda value: float(value <= limit))
        case ZeroAbove(of, limit):
            return _of_known(reader(of), lambda value: 0.0 if value > limit else None)
        case OneUnless(flag):
            return _of_known(reader(flag), lambda value: 1.0 if value == 0 else None)
        case ByOutcome(ok, cut_off, failed):
            return _by_outcome(reader(ok), reader(cut_off), reader(failed))
    raise AssertionError(f"not a formula: {formula!r}")


def _of_two(one: Reader, other: Reader, combine: Callable[[float, float], float]) -> Reader:
    def read(record: Any) -> float | None:
        a, b = one(record), other(record)
        return None if a is None or b is None else combine(a, b)

    return read


def _positive(of: Reader) -> Reader:
    def read(record: Any) -> float | None:
        value = of(record)
        return value if value is not None and value > 0 else None

    return read


def _first_of(first: Reader, second: Reader) -> Reader:
    def read(record: Any) -> float | None:
        value = first(record)
        return second(record) if value is None else value

    return read


def _where(field: str, wanted: str, of: Reader) -> Reader:
    def read(record: Any) -> float | None:
        return of(record) if getattr(record, field) == wanted else None

    return read


def _of_known(of: Reader, then: Callable[[float], float | None]) -> Reader:
    def read(record: Any) -> float | None:
        value = of(record)
        return None if value is None else then(value)

    return read


def _by_outcome(ok: Reader, cut_off: Reader, failed: Reader) -> Reader:
    def read(record: Any) -> float | None:
        match record.outcome:
            case "ok":
                return ok(record)
            case "cut_off":
                return cut_off(record)
            case "unsent":
                return None
        return failed(record)

    return read


def _enclosed(formula: Formula) -> str:
    inner = formula.of if isinstance(formula, Positive) else formula
    return str(inner) if isinstance(inner, Field) else f"({inner})"
