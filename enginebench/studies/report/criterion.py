"""A limit of the brief, and the numbers that are judged by it: met, missed, or not measurable here.

Where an interval reaches across a limit, it is not decided by what was measured, and is not measurable here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from enginebench.analysis.stats.repeats import REPEATS
from enginebench.records.formatting import in_words
from enginebench.records.view import Estimate
from enginebench.studies.report.contents import StudyReport
from enginebench.studies.report.expected import BriefLimit

CriterionAnswer = Literal["met", "missed", "not measurable here"]
MET: CriterionAnswer = "met"
MISSED: CriterionAnswer = "missed"
UNKNOWN: CriterionAnswer = "not measurable here"
NAMED = 4  # engines that a sentence names


@dataclass(frozen=True, slots=True)
class Judged:
    """`evidence`: what was measured, or why nothing was."""

    answer: CriterionAnswer
    evidence: str


@dataclass(frozen=True, slots=True)
class Criterion:
    """`key` is that of its limit in the brief, which `write` sets as text."""

    key: str
    title: str
    write: Callable[[float], str]
    judge: Callable[[StudyReport, BriefLimit], Judged]


@dataclass(frozen=True, slots=True)
class Value:
    """One number that a criterion is about, with its interval where it has one."""

    where: str
    number: Estimate
    text: str


def answer_of(limit: BriefLimit, values: Sequence[Value], nothing: str) -> Judged:
    """All keep the limit, some certainly do not, or what was measured does not say."""
    if not values:
        return Judged(UNKNOWN, nothing)
    sides = [(value, side_of(limit, value.number)) for value in values]
    off = [value for value, side in sides if side == MISSED]
    open_ones = [value for value, side in sides if side == UNKNOWN]
    if off:
        rest = len(values) - len(off)
        kept = f"; {rest} of {len(values)} keep it" if rest and not open_ones else ""
        return Judged(MISSED, f"{listed(off)}{kept}")
    if open_ones:
        return Judged(UNKNOWN, f"not decided by what was measured: {listed(open_ones)}")
    return Judged(MET, listed(values))


def side_of(limit: BriefLimit, number: Estimate) -> CriterionAnswer:
    """What too few repeats gave has no interval, and tells nothing; other numbers without one are exact."""
    ends = [end for end in (number.low, number.high) if end is not None]
    if not ends:
        if number.value is None or (number.missing and number.n < REPEATS):
            return UNKNOWN
        ends = [number.value]
    kept = [limit.keeps(end) for end in ends]
    return MET if all(kept) else UNKNOWN if any(kept) else MISSED


def listed(values: Sequence[Value]) -> str:
    named = [f"{value.where} {value.text}" for value in values[:NAMED]]
    more = [f"{len(values) - NAMED} more"] if len(values) > NAMED else []
    return in_words([*named, *more])


def worst_first(limit: BriefLimit, values: Sequence[Value]) -> list[Value]:
    """Furthest from the limit, or beyond it, first."""
    upper = limit.most is not None or limit.below is not None
    return sorted(values, key=lambda value: value.number.value or 0.0, reverse=upper)


def of_many(limit: BriefLimit, values: Sequence[Value], nothing: str, what: str) -> Judged:
    """Of a number that every engine has at every load: how many keep the limit, and the worst."""
    if not values:
        return Judged(UNKNOWN, nothing)
    ordered = worst_first(limit, values)
    sides = [side_of(limit, value.number) for value in ordered]
    evidence = f"{sides.count(MET)} of {len(values)} tests keep it; the worst is {listed(ordered[:1])} ({what})"
    return Judged(MISSED if MISSED in sides else UNKNOWN if UNKNOWN in sides else MET, evidence)
