"""Cells as text: the only place where a document's numbers are formatted.

Square brackets are always 95 % intervals. `phrases.LEGEND` explains every sign that a cell uses.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from enginebench.analysis.document import Axis, Block, Cell, Number, Table, Tone, Warning, Word
from enginebench.analysis.verdict.capacity import Capacity, LoadVerdict
from enginebench.analysis.verdict.slo_verdict import SloVerdict, Status
from enginebench.records.formatting import (
    INFINITE,
    PLAIN,
    ShownUnit,
    duration_unit,
    format_bytes,
    format_money,
    format_p,
    format_ratio,
    format_value,
    in_words,
    interval_ends,
    join_labels,
    significant,
)
from enginebench.records.view import Estimate, Missing

UNCONFIRMED, OPEN_ENDED, BELOW, INTERVAL, UNBOUNDED, ANSWERED = "*", "≥", "<", "[ ]", "∞", "answered"
SIMULATED = "simulated"
DASHES = {Missing.NOT_OBSERVED: "–", Missing.FAILED: INFINITE}
DASHES |= dict(zip((c for c in Missing if c not in DASHES), (f"–{letter}" for letter in "ᵃᵇᶜᵈᵉᶠᵍʰⁱʲ"), strict=False))
UNTESTED = "ᵇ"  # mark of a ratio over too few repeats
NO_DIFFERENCE = "not significant"
MAX_NAMES = 3  # engines, models or formats that are named one by one
SAME = 0.0005  # a smaller relative change counts as none

NO_BREAK = "\u00a0"
UNITS = r"(?:ms|s|µs|min|h|%|users?|requests|tokens/s|req/s|points|of)"

_glue = re.compile(rf"(?<=[≤<→]) | (?=\[)|(?<=[\d,]) (?={UNITS}(?![\w/]))|(?<=of) (?=\d)|(?<=,) (?=[^\[\]]*\])")
_control = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True)
class Shown:
    """A cell as text: `note` is an interval or a remark, which may be placed below `text`. The legend explains `signs`.
    A column is sorted by `value`."""

    text: str
    note: str = ""
    tone: Tone = Tone.PLAIN
    signs: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        return " ".join(filter(None, (self.text, self.note)))


def show(cell: Cell) -> Shown:
    match cell:
        case None:
            return Shown("")
        case Missing():
            return Shown(DASHES[cell], tone=Tone.DIM, signs=(DASHES[cell],))
        case Word():
            return Shown(clean(cell.text), tone=cell.tone)
        case Capacity():
            return _capacity(cell)
        case SloVerdict():
            return _verdict(cell)
        case Number():
            return _number(cell)
        case Warning():
            return Shown(_warning(cell))


def clean(text: str) -> str:
    """Remove control characters, which a label may contain and a terminal would execute."""
    return _control.sub("", " ".join(text.split()))


def glued(text: str) -> str:
    """Keep a number with its unit, and an interval with its number, on one line."""
    return _glue.sub(NO_BREAK, text)


def load_number(load: float) -> str:
    """Write `1,200`, `7.71`, `2.5`."""
    return f"{load:,.0f}" if load == round(load) or load >= 1000 else f"{load:.3g}"


def place_text(axis: Axis, x: float) -> str:
    """Write a place on the horizontal axis of loads: a number, or the label at this index."""
    return clean(axis.names[round(x)]) if axis.names else load_number(x)


def change_text(estimate: Estimate, share: bool = False) -> tuple[str, str]:
    """Write a ratio of new over old as ("28 % lower", "[25, 31]"), and a difference of shares in points."""
    value = estimate.value or 0.0
    if math.isinf(value):
        return INFINITE, ""
    offset, unit = (0.0, " points") if share else (1.0, " %")
    if abs(value - offset) < SAME:
        return "unchanged", _signed(estimate, offset)
    lower = value < offset
    text = f"{_percent(abs(value - offset))}{unit} {'lower' if lower else 'higher'}"
    low, high = estimate.ends
    if low is None or high is None or low < offset < high:
        return text, _signed(estimate, offset)
    ends = sorted(abs(end - offset) for end in (low, high))
    return text, f"[{_percent(ends[0])}, {_percent(ends[1])}]"


def signs_of(blocks: Iterable[Block]) -> frozenset[str]:
    tables = [block for block in blocks if isinstance(block, Table)]
    return frozenset(sign for table in tables for row in table.rows for cell in row for sign in show(cell).signs)


def _capacity(capacity: Capacity) -> Shown:
    load, beyond = capacity.load, capacity.beyond
    if load is None and beyond is None:
        return show(Missing.NOT_OBSERVED)
    met = "" if load is None or capacity.met_confirmed else UNCONFIRMED
    missed = "" if beyond is None or capacity.missed_confirmed else UNCONFIRMED
    signs = [UNCONFIRMED] if met or missed else []
    note = ""
    if load is None:
        text = f"< {load_number(beyond or 0.0)}{missed}"
        signs.append(BELOW)
    elif beyond is None:
        text = f"{OPEN_ENDED} {load_number(load)}{met}"
        signs.append(OPEN_ENDED)
    else:
        text = f"{load_number(load)}{met}"
        note = f"(missed at {load_number(beyond)}{missed}{_reason(capacity.at(beyond))})"
    return Shown(text, note, Tone.BAD if load is None else Tone.PLAIN, tuple(signs))


def _reason(verdict: LoadVerdict | None) -> str:
    """Name the metrics that missed their limits, if there are several limits: `: TPOT`."""
    objectives = () if verdict is None else verdict.slo.objectives
    missed = [own.objective.text.partition(" ")[0] for own in objectives if own.status is Status.MISSED]
    return f": {', '.join(dict.fromkeys(missed))}" if missed and len(objectives) > 1 else ""


def _verdict(verdict: SloVerdict) -> Shown:
    if verdict.status is Status.NOT_MEASURED:
        return Shown(verdict.status.value, tone=Tone.DIM)
    tone = Tone.GOOD if verdict.status is Status.MET else Tone.BAD
    if verdict.confirmed:
        return Shown(verdict.status.value, tone=tone)
    return Shown(f"{verdict.status.value}{UNCONFIRMED}", tone=tone, signs=(UNCONFIRMED,))


def _warning(warning: Warning) -> str:
    """`TPOT went from 152 ms to 172 ms (vllm-bf16, 64 users; also openvino-q8)`"""
    also = in_words(warning.also) if len(warning.also) <= MAX_NAMES else f"{len(warning.also)} other engines"
    place = ", ".join(filter(None, (in_words(warning.engines), join_labels(warning.stages))))
    place = "; ".join(filter(None, (place, f"also {also}" if also else "")))
    return clean(f"{warning.evidence} ({place})" if place else warning.evidence)


def _number(number: Number) -> Shown:
    estimate = number.estimate
    if estimate.value is None:
        return show(estimate.missing or Missing.NOT_OBSERVED)
    text, note = _texts(number, estimate)
    signs = [INTERVAL] if note.startswith("[") else []
    signs += [UNBOUNDED] if UNBOUNDED in note else []
    if number.style in {"ratio", "change"} and number.significant is None and estimate.missing is Missing.FEW_REPEATS:
        text += UNTESTED
        signs.append(DASHES[Missing.FEW_REPEATS])
    if text == INFINITE:
        signs.append(INFINITE)
        if number.answered is not None:
            note = f"{ANSWERED} {format_value(number.answered, number.unit)}"
            signs.append(ANSWERED)
    if number.over:
        text += f"{' than' if number.style == 'change' else ''} {clean(number.over)}"
    if number.simulated is not None:
        note = f"({SIMULATED}: {number.simulated:,})"
        signs.append(SIMULATED)
    if number.approximate:
        text += UNCONFIRMED
        signs.append(UNCONFIRMED)
    return Shown(text, note, number.tone, tuple(signs))


def _texts(number: Number, estimate: Estimate) -> tuple[str, str]:
    """Return the value, and its interval or the words that replace it."""
    value, (low, high) = estimate.value or 0.0, estimate.ends
    if number.style == "part":
        return f"{round(value * estimate.n):,} of {estimate.n:,}", ""
    if number.style == "p":
        return format_p(value), ""
    if number.style == "count":
        return (INFINITE if math.isinf(value) else f"{value:,.0f}"), ""
    if number.style in {"ratio", "change"}:
        if number.style == "ratio":
            text, _, interval = format_ratio(value, low, high).partition(" ")
        else:
            text, interval = change_text(estimate, number.unit == "share")
        return text, NO_DIFFERENCE if number.significant is False else interval
    if number.style == "money":
        return format_money(value), _interval(estimate, PLAIN)
    if number.unit == "B":
        return format_bytes(value), ""
    unit = number.shown_in
    if unit is not None and value and math.isfinite(value):
        return f"{unit.write(value)} {unit.name}", _interval(estimate, unit)
    return format_value(value, number.unit), _interval(estimate, _unit(value, number.unit))


def _unit(value: float, unit: str) -> ShownUnit:
    """Return the unit in which this value is written, for its interval."""
    if unit == "share":
        return ShownUnit("%", 100)
    return duration_unit(value) if unit == "s" and value and math.isfinite(value) else PLAIN


def _interval(estimate: Estimate, unit: ShownUnit) -> str:
    """Write the interval in the unit of the value, without repeating the unit; nothing if it has no upper end."""
    low, high = estimate.ends
    if low is None or high is None or math.isinf(high):
        return ""
    ends = interval_ends(low * unit.scale, high * unit.scale)
    return "" if ends is None else f"[{ends[0]}, {ends[1]}]".replace(",", "").replace(" ", ", ")


def _signed(estimate: Estimate, offset: float) -> str:
    low, high = estimate.ends
    if low is None or high is None:
        return ""
    texts = [f"{'−' if end < offset else '+'}{_percent(abs(end - offset))}" for end in (low, high)]
    return f"[{texts[0]}, {texts[1]}]"


def _percent(share: float) -> str:
    """Write two digits, the precision of a change: 0.281 → "28", 0.021 → "2.1"."""
    return UNBOUNDED if math.isinf(share) else significant(100 * share, 2)
