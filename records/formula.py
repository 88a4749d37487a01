"""Formulas as values: written once, computed on one request's numbers here and on whole columns by the analysis.

    TTFT = Between(Field("t_send"), Field("t_first"))
    NTPOT = Between(Field("t_send"), Field("t_last")) / Positive(Field("output_tokens"))

An operand that was not observed makes the whole formula `None`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
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
Reader = Callable[[Any], float | None]


def reader(formula: Formula) -> Reader:
    """A function that gives the formula's value for one record: any object with the fields as attributes."""
    all_of = readers([formula])
    return lambda record: all_of(record)[0]


def readers(formulas: Iterable[Formula]) -> Callable[[Any], tuple[float | None, ...]]:
    """A function that gives the values of several formulas for one record.

    Made once, as straight Python in which no part is computed twice: the load generator computes every metric of every
    request while it measures, and one closure for each node of each formula takes four times as long.
    """
    names: dict[Formula, str] = {}
    lines: list[str] = []

    def name_of(formula: Formula) -> str:
        if formula not in names:
            code = _code(formula, name_of)
            names[formula] = f"v{len(names)}"
            lines.append(f"    {names[formula]} = {code}\n")
        return names[formula]

    results = [name_of(formula) for formula in formulas]
    scope: dict[str, Any] = {"inf": math.inf}
    exec(f"def read(record):\n{''.join(lines)}    return ({', '.join(results)},)", scope)
    read: Callable[[Any], tuple[float | None, ...]] = scope["read"]
    return read


def _code(formula: Formula, name_of: Callable[[Formula], str]) -> str:
    """The formula in Python, with the names of its parts' values."""
    match formula:
        case Field(field):
            return f"record.{field}"
        case Constant(value):
            return f"{value!r}"
        case Missing(field):
            return f"1.0 if record.{field} is None else 0.0"
        case Longest(field):
            return f"max(record.{field}) / {SECOND} if record.{field} else None"
        case Is(field, wanted):
            return f"1.0 if record.{field} == {wanted!r} else 0.0"
        case Where(field, wanted, of):
            return f"{name_of(of)} if record.{field} == {wanted!r} else None"
        case Between(start, end):
            return _of_two(name_of(start), name_of(end), f"({name_of(end)} - {name_of(start)}) / {SECOND}")
        case Difference(left, right):
            return _of_two(name_of(left), name_of(right), f"{name_of(left)} - {name_of(right)}")
        case Quotient(top, bottom):
            return _of_two(name_of(top), name_of(bottom), f"{name_of(top)} / {name_of(bottom)}")
        case Given(of, known):
            return _of_two(name_of(of), name_of(known), name_of(of))
        case FirstOf(first, second):
            return f"{name_of(second)} if {name_of(first)} is None else {name_of(first)}"
        case ByOutcome(ok, cut_off, failed):
            judged = f"{name_of(failed)} if record.outcome != 'unsent' else None"
            others = f"{name_of(cut_off)} if record.outcome == 'cut_off' else {judged}"
            return f"{name_of(ok)} if record.outcome == 'ok' else {others}"
        case Both(one, other):
            return f"min({name_of(one)}, {name_of(other)})"
        case Either(one, other):
            return f"max({name_of(one)}, {name_of(other)})"
        case Known(of):
            return f"0.0 if {name_of(of)} is None else 1.0"
        case Below(of, limit):
            return f"1.0 if {name_of(of)} is not None and {name_of(of)} < {limit!r} else 0.0"
        case Above(of, limit):
            return f"1.0 if {name_of(of)} is not None and {name_of(of)} > {limit!r} else 0.0"
        case Positive(of):
            return f"{name_of(of)} if {name_of(of)} is not None and {name_of(of)} > 0 else None"
        case Magnitude(of):
            return f"None if {name_of(of)} is None else abs({name_of(of)})"
        case AtMost(of, limit):
            return f"None if {name_of(of)} is None else 1.0 if {name_of(of)} <= {limit!r} else 0.0"
        case ZeroAbove(of, limit):
            return f"0.0 if {name_of(of)} is not None and {name_of(of)} > {limit!r} else None"
        case OneUnless(flag):
            return f"1.0 if {name_of(flag)} == 0 else None"
    raise AssertionError(f"not a formula: {formula!r}")


def _of_two(one: str, other: str, combined: str) -> str:
    return f"None if {one} is None or {other} is None else {combined}"


def _enclosed(formula: Formula) -> str:
    inner = formula.of if isinstance(formula, Positive) else formula
    return str(inner) if isinstance(inner, Field) else f"({inner})"
