"""Formulas as values: written once, computed on one request's numbers here and on whole columns by the analysis.

    TTFT = Between("t_send", "t_first")
    NTPOT = Between("t_send", "t_last") / Positive(Field("output_tokens"))

An operand that was not observed makes the whole formula `None`.
"""

from __future__ import annotations

from dataclasses import dataclass
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


def evaluate(formula: Formula, record: Any) -> float | None:
    """The formula's value for one record: any object with the fields as attributes."""
    match formula:
        case Field(name):
            value: float | None = getattr(record, name)
            return value
        case Between(start, end):
            begun, ended = evaluate(start, record), evaluate(end, record)
            return None if begun is None or ended is None else (ended - begun) / SECOND
        case Difference(left, right):
            a, b = evaluate(left, record), evaluate(right, record)
            return None if a is None or b is None else a - b
        case Quotient(top, bottom):
            a, b = evaluate(top, record), evaluate(bottom, record)
            return None if a is None or b is None else a / b
        case Positive(of):
            value = evaluate(of, record)
            return value if value is not None and value > 0 else None
        case FirstOf(first, second):
            value = evaluate(first, record)
            return evaluate(second, record) if value is None else value
        case Where(field, wanted, of):
            return evaluate(of, record) if getattr(record, field) == wanted else None
    raise AssertionError(f"not a formula: {formula!r}")


def _enclosed(formula: Formula) -> str:
    inner = formula.of if isinstance(formula, Positive) else formula
    return str(inner) if isinstance(inner, Field) else f"({inner})"
