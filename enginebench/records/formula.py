"""Formulas as values: written once, computed for one record by `records/readers.py` and for columns by the analysis.

    TTFT = Between(Field("t_send"), Field("t_first"))
    NTPOT = Between(Field("t_send"), Field("t_last")) / Positive(Field("output_tokens"))

An operand that was not observed makes the whole formula `None`.
"""

from __future__ import annotations

from msgspec import Struct


class Formula(Struct, frozen=True):
    """Arithmetic on formulas makes formulas."""

    def __sub__(self, other: Formula) -> Formula:
        return Difference(self, other)

    def __truediv__(self, divisor: Positive) -> Formula:
        return Quotient(self, divisor)


class Field(Formula, frozen=True):
    """A field of the record."""

    name: str

    def __str__(self) -> str:
        return self.name


class Between(Formula, frozen=True):
    """Seconds from one stamp to another; of several starts, the first that was observed."""

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
    """The divisor must be `Positive`, so that nothing is divided by zero."""

    top: Formula
    bottom: Positive

    def __str__(self) -> str:
        return f"{_enclosed(self.top)} ÷ {_enclosed(self.bottom.of)}"


class Positive(Formula, frozen=True):
    """`of` where it is above zero, else nothing."""

    of: Formula

    def __str__(self) -> str:
        return str(self.of)


class FirstOf(Formula, frozen=True):
    """The first of several that was observed."""

    first: Formula
    second: Formula

    def __str__(self) -> str:
        return f"{self.first}, else {self.second}"


class Constant(Formula, frozen=True):
    value: float

    def __str__(self) -> str:
        return f"{self.value:g}"


class Longest(Formula, frozen=True):
    """Seconds of the longest gap in `field`, a list of nanoseconds; nothing where it is empty."""

    field: str

    def __str__(self) -> str:
        return f"max({self.field})"


class Magnitude(Formula, frozen=True):
    """Without its sign."""

    of: Formula

    def __str__(self) -> str:
        return f"|{self.of}|"


# Flags: 1 or 0, and never nothing.


class Is(Formula, frozen=True):
    """1 where the record's `field` equals `value`."""

    field: str
    value: str | int | bool

    def __str__(self) -> str:
        return f"{self.field} = {self.value}"


class Known(Formula, frozen=True):
    """1 where `of` was observed."""

    of: Formula

    def __str__(self) -> str:
        return f"{_enclosed(self.of)} known"


class Below(Formula, frozen=True):
    """1 where `of` was observed and is less than `limit`."""

    of: Formula
    limit: float

    def __str__(self) -> str:
        return f"{_enclosed(self.of)} < {self.limit:g}"


class Above(Formula, frozen=True):
    """1 where `of` was observed and is more than `limit`."""

    of: Formula
    limit: float

    def __str__(self) -> str:
        return f"{_enclosed(self.of)} > {self.limit:g}"


class Both(Formula, frozen=True):
    """1 where two flags are 1."""

    one: Formula
    other: Formula

    def __str__(self) -> str:
        return f"{_enclosed(self.one)} and {_enclosed(self.other)}"


class Either(Formula, frozen=True):
    """1 where at least one of two flags is 1."""

    one: Formula
    other: Formula

    def __str__(self) -> str:
        return f"{_enclosed(self.one)} or {_enclosed(self.other)}"


class Not(Formula, frozen=True):
    """1 where a flag is 0."""

    flag: Formula

    def __str__(self) -> str:
        return f"not {_enclosed(self.flag)}"


class When(Formula, frozen=True):
    """`of` where a flag is 1, else nothing."""

    flag: Formula
    of: Formula

    def __str__(self) -> str:
        return f"{self.of}, where {self.flag}"


class ByOutcome(Formula, frozen=True):
    """One formula for requests that ended `ok`, one for those that were `cut_off`, one for all failures. One that was
    `unsent` has no value."""

    ok: Formula
    cut_off: Formula
    failed: Formula

    def __str__(self) -> str:
        return f"ok: {self.ok}; cut off: {self.cut_off}; failed: {self.failed}"


NOTHING = Positive(Constant(0.0))


def _enclosed(formula: Formula) -> str:
    inner = formula.of if isinstance(formula, Positive) else formula
    return str(inner) if isinstance(inner, Field) else f"({inner})"
