"""A document as data: the content that a command shows, before it becomes text.

Sections build it from a frame; the writers in `analysis/write/` turn it into text for a terminal, a page, Markdown,
JUnit XML or a table. A cell is a typed value: no section formats a number, and no writer computes one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Literal

import polars as pl

from enginebench.analysis.answer import Answer
from enginebench.analysis.tested import Tested
from enginebench.analysis.verdict.capacity import Capacity
from enginebench.analysis.verdict.slo_verdict import SloVerdict, Status
from enginebench.records.formatting import CURRENCY, ShownUnit, time_unit
from enginebench.records.slo import Objective
from enginebench.records.view import Estimate, Missing, Severity

MIN_SHOWN = 0.1  # smallest value in a shared unit
Style = Literal["plain", "ratio", "change", "part", "money", "count", "p"]
"""How a number is written: `plain` in its unit; `ratio` as 1.4×; `change`, a ratio of new over old (for shares, the
difference), as "28 % lower"; `part`, a share of the estimate's `n`, as "403 of 403"; `money` in `CURRENCY`; `count`
without decimals; `p` as a p value."""


class Tone(Enum):
    PLAIN = ""
    GOOD = "good"
    BAD = "bad"
    CAUTION = "caution"
    DIM = "dim"


@dataclass(frozen=True, slots=True)
class Number:
    """A number in `unit` (`s`, `tokens/s`, `share`, `J`, …) with its 95 % interval, or the code for why it is missing.

    `approximate` marks a measured value that is not confirmed (`*`). `significant` is the result of the test of a ratio
    or change, `None` if there was no test. `answered` is the percentile of only the answered requests, if the value
    falls among failed requests. `over` names a ratio's denominator; `simulated` is the count by simulation, if it
    differs. `shown_in` is the unit that a column of durations shares.
    """

    estimate: Estimate
    unit: str = ""
    style: Style = "plain"
    tone: Tone = Tone.PLAIN
    approximate: bool = False
    significant: bool | None = None
    answered: float | None = None
    over: str = ""
    simulated: int | None = None
    shown_in: ShownUnit | None = None


@dataclass(frozen=True, slots=True)
class Word:
    """A name, or a word of a fixed list."""

    text: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True)
class Warning:
    """A reason to doubt the numbers of `engines` (all, if empty) at `stages`, with evidence from there, and the remedy.

    `also` has further engines with a finding of that kind, and `count` is the number of merged findings.
    """

    kind: str
    severity: Severity
    evidence: str
    remedy: str
    engines: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    count: int = 1


Cell = Number | Word | Capacity | SloVerdict | Warning | Missing | None
"""A capacity is written as `8`, `8*`, `≥ 8`, `24 (missed at 28)` or `< 1`, a verdict as `met`, `met*` or `missed`.
`None` is an empty cell."""


@dataclass(frozen=True, slots=True)
class Column:
    """`title` is the heading, with `unit` below it. Narrow terminals drop the columns with the largest `rank` first,
    and never those of rank 0."""

    title: str
    unit: str = ""
    rank: int = 0
    text: bool = False  # words, left-aligned; else numbers

    @property
    def heading(self) -> str:
        return f"{self.title} {self.unit}".strip()


ENGINE, LOAD, REQUESTS = Column("engine", text=True), Column("load", text=True), Column("requests")


def word(text: str | None, tone: Tone = Tone.PLAIN) -> Word | None:
    return Word(text, tone) if text else None


def count(number: float | None, tone: Tone = Tone.PLAIN) -> Number:
    return Number(Estimate(number), style="count", tone=tone)


def money(amount: float | Estimate | None) -> Number:
    return Number(amount if isinstance(amount, Estimate) else Estimate(amount), CURRENCY.sign, "money")


def part(share: float | None, n: int) -> Number:
    """Show a share as part of `n`, such as 403 of 403."""
    return Number(Estimate(share, n=n), "share", "part")


def p_value(p: float | None) -> Number | None:
    return None if p is None else Number(Estimate(p), style="p")


@dataclass(frozen=True, slots=True)
class Table:
    """`key` is unique within a document. `engines` is the index of the column by which a page filters engines.
    `rows_shown` is the maximum number of rows on a terminal."""

    key: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    engines: int | None = None
    rows_shown: int = 40

    def without_empty_columns(self) -> Table:
        kept = [k for k in range(len(self.columns)) if any(row[k] is not None for row in self.rows)]
        columns, rows = tuple(self.columns[k] for k in kept), tuple(tuple(row[k] for k in kept) for row in self.rows)
        engines = kept.index(self.engines) if self.engines in kept else None
        return Table(self.key, self.title, columns, rows, engines, self.rows_shown)

    def with_shared_units(self) -> Table:
        """Write the durations of a column in one unit, unless that would hide digits of the shortest."""
        columns = [_with_shared_unit(cells) for cells in zip(*self.rows, strict=True)]
        return replace(self, rows=tuple(zip(*columns, strict=True)))


def _with_shared_unit(cells: Sequence[Cell]) -> list[Cell]:
    values = [c.estimate.value for c in cells if isinstance(c, Number) and c.unit == "s" and c.style == "plain"]
    sizes = [value for value in values if value is not None and 0 < value < math.inf]
    unit = time_unit(sizes)
    if not sizes or min(sizes) * unit.scale < MIN_SHOWN:
        return list(cells)
    return [replace(c, shown_in=unit) if isinstance(c, Number) and c.unit == "s" else c for c in cells]


@dataclass(frozen=True, slots=True)
class Point:
    """`label` names the point (a load); `status` and `confirmed` come from its SLO verdict, if any. A percentile that
    falls among failed requests is +∞, and drawn at the top."""

    x: float
    y: float | None
    low: float | None = None
    high: float | None = None
    label: str = ""
    status: Status | None = None
    confirmed: bool = True

    @property
    def failed(self) -> bool:
        return self.y == math.inf


@dataclass(frozen=True, slots=True)
class Series:
    """Points that are drawn in one colour, usually those of an engine."""

    name: str
    points: tuple[Point, ...]


TIMES_LIMIT = "× the limit"  # the unit of an axis on which an SLO's limit is 1


@dataclass(frozen=True, slots=True)
class Axis:
    """`names` are the labels of an axis without numbers, in order."""

    title: str
    unit: str = ""
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a timeline: a steady window, a burst, an outage."""

    start: float
    end: float
    title: str
    tone: Tone = Tone.DIM


ChartKind = Literal["load", "pareto", "distribution", "time"]
"""`load`: a metric by load, points without lines. `pareto`: throughput against speed. `distribution`: values by
percentile. `time`: one dot or step for each instant."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart with its numbers. `limit` is the SLO's limit on the vertical axis. `at` is the load at which the
    candidates are compared."""

    key: str
    title: str
    kind: ChartKind
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    limit: float | None = None
    spans: tuple[Span, ...] = ()
    at: float | None = None
    marks: tuple[Point, ...] = ()  # single points with a label, such as a recovery


@dataclass(frozen=True, slots=True)
class Code:
    """Commands or other text to copy."""

    lines: tuple[str, ...]


Block = Table | Figure | Code


@dataclass(frozen=True, slots=True)
class Section:
    """`folded`: a page shows it closed, and a terminal leaves it out."""

    key: str
    title: str
    blocks: tuple[Block, ...]
    folded: bool = False


@dataclass(frozen=True, slots=True)
class NextStep:
    """The next step: a command and its purpose, a key of `write/phrases.py`. `varied`: the command asks for answers of
    varied length, as the runs did not."""

    purpose: str
    command: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    varied: bool = False


@dataclass(frozen=True, slots=True)
class SliderEngine:
    """`price` is US dollars per hour. `sustained` (measured) and `simulated` are the loads that one replica sustains,
    if known in the unit of the peak. `by_load` has, for each measured load, the values to compare with the limits;
    `None` misses every limit."""

    name: str
    price: float | None
    sustained: float | None
    simulated: float | None
    by_load: tuple[tuple[float, tuple[float | None, ...]], ...]


@dataclass(frozen=True, slots=True)
class Sliders:
    """The inputs with which a page plans for another peak, other limits (titles and seconds) and other prices. `hours`
    is the number of hours in a month."""

    unit: str
    peak: float
    headroom: float
    spares: int
    hours: float
    limits: tuple[tuple[str, float], ...]
    engines: tuple[SliderEngine, ...]
    currency: str = CURRENCY.sign


@dataclass(frozen=True, slots=True)
class Document:
    """The first screen, then sections. Without a `title`, the engines are the title. `frame` holds every number that is
    shown anywhere, in tidy form; `exit_code` is 0 good, 1 an objective missed or a regression, 2 invalid, 3 not enough
    evidence."""

    tested: Tested
    answer: Answer
    frame: pl.DataFrame
    title: str = ""
    objectives: tuple[Objective, ...] = ()
    candidates: Table | None = None
    figure: Figure | None = None
    next: NextStep | None = None
    warnings: tuple[Warning, ...] = ()
    sections: tuple[Section, ...] = ()
    exit_code: int = 0
    sliders: Sliders | None = None

    @property
    def blocks(self) -> Iterator[Block]:
        yield from (block for block in (self.candidates, self.figure) if block is not None)
        for section in self.sections:
            yield from section.blocks
