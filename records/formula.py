"""Formulas as values: written once, computed for one record by `records/readers.py` and for columns by the analysis.

    TTFT = Between(Field("t_send"), Field("t_first"))
    NTPOT = Between(Field("t_send"), Field("t_last")) / Positive(Field("output_tokens"))

An operand that was not observed makes the whole formula `None`.
"""

from __future__ import annotations

from dataclasses import dataclass


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
class Given(Formula):
    """`of` where `known` was observed too, else nothing."""

    of: Formula
    known: Formula

    def __str__(self) -> str:
        return f"{self.of}, where {self.known} is known"


@dataclass(frozen=True, slots=True)
class Magnitude(Formula):
    """Without its sign."""

    of: Formula

    def __str__(self) -> str:
        return f"|{self.of}|"


# Flags: 1 or 0, and never nothing.


@dataclass(frozen=True, slots=True)
class Is(Formula):
    """1 where the record's `field` equals `value`."""

    field: str
    value: str | int | bool

    def __str__(self) -> str:
        return f"{self.field} = {self.value}"


@dataclass(frozen=True, slots=True)
class Known(Formula):
    """1 where `of` was observed."""

    of: Formula

    def __str__(self) -> str:
        return f"{_enclosed(self.of)} known"


@dataclass(frozen=True, slots=True)
class Below(Formula):
    """1 where `of` was observed and is less than `limit`."""

    of: Formula
    limit: float

    def __str__(self) -> str:
        return f"{_enclosed(self.of)} < {self.limit:g}"


@dataclass(frozen=True, slots=True)
class Above(Formula):
    """1 where `of` was observed and is more than `limit`."""

    of: Formula
    limit: float

    def __str__(self) -> str:
        return f"{_enclosed(self.of)} > {self.limit:g}"


@dataclass(frozen=True, slots=True)
class Both(Formula):
    """1 where two flags are 1."""

    one: Formula
    other: Formula

    def __str__(self) -> str:
        return f"{_enclosed(self.one)} and {_enclosed(self.other)}"


@dataclass(frozen=True, slots=True)
class Either(Formula):
    """1 where at least one of two flags is 1."""

    one: Formula
    other: Formula

    def __str__(self) -> str:
        return f"{_enclosed(self.one)} or {_enclosed(self.other)}"


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


def _enclosed(formula: Formula) -> str:
    inner = formula.of if isinstance(formula, Positive) else formula
    return str(inner) if isinstance(inner, Field) else f"({inner})"
