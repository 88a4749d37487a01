"""From formulas to functions that compute them for one record: any object with the fields as attributes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
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
    """Gives the formula's value for one record; `None` where a part of it was not observed."""
    all_of = readers([formula])
    return lambda record: all_of(record)[0]


def readers(formulas: Iterable[Formula]) -> Callable[[Any], tuple[float | None, ...]]:
    """Gives the values of several formulas for one record.

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
        case Longest(field):
            return f"max(record.{field}) / {SECOND} if record.{field} else None"
        case Is(field, wanted):
            return f"1.0 if record.{field} == {wanted!r} else 0.0"
        case Between(start, end):
            return _of_two(name_of(start), name_of(end), f"({name_of(end)} - {name_of(start)}) / {SECOND}")
        case Difference(left, right):
            return _of_two(name_of(left), name_of(right), f"{name_of(left)} - {name_of(right)}")
        case Quotient(top, bottom):
            return _of_two(name_of(top), name_of(bottom), f"{name_of(top)} / {name_of(bottom)}")
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
        case Not(flag):
            return f"1.0 if {name_of(flag)} == 0 else 0.0"
        case When(flag, of):
            return f"{name_of(of)} if {name_of(flag)} == 1 else None"
    raise AssertionError(f"not a formula: {formula!r}")


def _of_two(one: str, other: str, combined: str) -> str:
    return f"None if {one} is None or {other} is None else {combined}"
