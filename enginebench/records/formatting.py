"""Format numbers for people, without digits beyond their precision.

Seconds are the unit everywhere in the code; milliseconds exist only here. A failed request has an infinite duration.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MISSING = "–"
INFINITE = "failed"  # text for a value that falls among failed requests
MAX_DIGITS = 6  # digits of a ratio


@dataclass(frozen=True, slots=True)
class Currency:
    name: str
    code: str  # ISO 4217
    sign: str


CURRENCY = Currency("US dollars", "USD", "$")  # of every price and cost


def significant(value: float, digits: int = 3) -> str:
    """Round to n significant digits, with thousands separators: 0.0482, 41.2, 1,235. Keep all integer digits."""
    if math.isinf(value):
        return INFINITE
    if value == 0:
        return "0"
    decimals = max(digits - 1 - math.floor(math.log10(abs(_rounded(value, digits)))), 0)
    return f"{value:,.{decimals}f}"


def format_seconds(seconds: float | None) -> str:
    """Write three significant digits, in the unit that keeps them short: `format_seconds(0.0123) == "12.3 ms"`."""
    if seconds is None:
        return MISSING
    if math.isinf(seconds):
        return INFINITE
    if seconds == 0:
        return "0 s"
    unit = duration_unit(seconds)
    return f"{unit.write(seconds)} {unit.name}"


def format_limit(seconds: float) -> str:
    """Write a limit without trailing zeros: `60 ms`, `1.5 s`."""
    unit = duration_unit(seconds)
    return f"{seconds * unit.scale:g} {unit.name}"


def duration_unit(seconds: float) -> ShownUnit:
    """Return the unit that keeps three digits short: 0.9996 s is 1.00 s, not 1000 ms."""
    size = abs(_rounded(seconds, 3))
    return next(unit for least, unit in DURATIONS if size >= least)


def format_error(seconds: float) -> str:
    """Write an error in milliseconds, with no more digits than are known: 0.0000384 → "± 0.038 ms"."""
    return f"± {significant(seconds * 1e3, 2)} ms"


def format_share(share: float | None) -> str:
    """Write 0.1234 as "12.3 %"; only exact values become 0 % and 100 %."""
    if share is None:
        return MISSING
    if 0 < share < 0.0005:
        return "< 0.1 %"
    if 0.9995 <= share < 1:
        return "> 99.9 %"
    return f"{100 * share:.1f}".removesuffix(".0") + " %"


def format_bytes(size: float | None) -> str:
    """Write bytes with binary prefixes: 1536 MiB is 1.50 GiB."""
    if size is None:
        return MISSING
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(_rounded(size, 4)) < 1024:
            return f"{significant(size)} {unit}"
        size /= 1024
    return f"{significant(size)} TiB"


def format_value(value: float | None, unit: str) -> str:
    """Write a value in its unit: 12.3 ms, 1.50 GiB, 4.2 %, 41.2."""
    if value is None:
        return MISSING
    written = {"s": format_seconds, "B": format_bytes, "share": format_share}.get(unit)
    return significant(value) if written is None else written(value)


def format_money(amount: float, decimals: int | None = None) -> str:
    """Write three significant digits, or `decimals`: $6,570, $0.0842."""
    return CURRENCY.sign + (significant(amount) if decimals is None else f"{amount:,.{decimals}f}")


def format_p(p: float | None) -> str:
    """Write a p value; empty if nothing was tested."""
    if p is None:
        return ""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def format_count(count: float | None) -> str:
    return MISSING if count is None else f"{count:,.0f}"


def counted(count: int, noun: str) -> str:
    """Write `1 request`, `1,200 requests`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def interval_ends(low: float | None, high: float | None) -> tuple[str, str] | None:
    """Write both ends with enough digits to differ; `None` if one is missing, or they are equal."""
    if low is None or high is None or low == high:
        return None
    digits = next((d for d in range(3, MAX_DIGITS) if significant(low, d) != significant(high, d)), MAX_DIGITS)
    return significant(low, digits), significant(high, digits)


def format_ratio(value: float, low: float | None, high: float | None) -> str:
    """Write two significant digits, 3.1× [2.9, 3.3], or three if the engines are close or the interval is narrow,
    1.46× [1.45, 1.47]. Write more digits if both ends would look the same, or an end that is not 1 would look like 1.
    Leave out an interval without width.
    """
    few = digits = 3 if 0.8 < value < 1.25 or value >= 10 else 2
    if low is None or high is None:
        return f"{_factor(value, digits)}×"
    if digits == 2 and math.isfinite(high) and high - low < 0.19 * 10.0 ** math.floor(math.log10(value or 1.0)):
        digits = 3
    while digits < MAX_DIGITS and (
        _factor(low, digits) == _factor(high, digits)
        or any(end != 1 and _factor(end, digits) == _factor(1, digits) for end in (low, high))
    ):
        digits += 1
    if _factor(low, digits) == _factor(high, digits):
        return f"{_factor(value, few)}×"
    return f"{_factor(value, digits)}× [{_factor(low, digits)}, {_factor(high, digits)}]"


def _factor(ratio: float, digits: int) -> str:
    return "∞" if math.isinf(ratio) else significant(ratio, digits)


def in_words(items: Sequence[str], last: str = "and") -> str:
    """Join as `10, 20 and 40`."""
    return f"{', '.join(items[:-1])} {last} {items[-1]}" if len(items) > 1 else "".join(items)


def join_labels(labels: Sequence[str]) -> str:
    """Join labels of stages, with their common unit written once: `10, 20 and 40 users`."""
    parts = [label.partition(" ") for label in labels]
    units = {"users" if unit == "user" else unit for _, _, unit in parts}
    if len(labels) < 2 or len(units) > 1 or units == {""} or not all(number[:1].isdigit() for number, _, _ in parts):
        return in_words(labels)
    return f"{in_words([number for number, _, _ in parts])} {units.pop()}"


@dataclass(frozen=True, slots=True)
class ShownUnit:
    """The unit that a whole column is written in."""

    name: str
    scale: float  # one second, or one of the base unit, in this unit

    def write(self, value: float) -> str:
        return significant(value * self.scale)


SECONDS, MILLISECONDS, MICROSECONDS = ShownUnit("s", 1), ShownUnit("ms", 1e3), ShownUnit("µs", 1e6)
DURATIONS = (
    (36_000.0, ShownUnit("h", 1 / 3600)),
    (600.0, ShownUnit("min", 1 / 60)),
    (1.0, SECONDS),
    (1e-3, MILLISECONDS),
    (0.0, MICROSECONDS),
)
PLAIN = ShownUnit("", 1)
IN_TABLES = {"share": ShownUnit("%", 100), "B": ShownUnit("GB", 1e-9), "Hz": ShownUnit("GHz", 1e-9)}


def time_unit(seconds: Iterable[float | None]) -> ShownUnit:
    """Choose the unit of a column of durations so that the largest is below a thousand."""
    magnitudes = (abs(value) for value in seconds if value is not None and math.isfinite(value))
    largest = _rounded(max(magnitudes, default=1.0), 3)
    if largest >= 1:
        return SECONDS
    return MILLISECONDS if largest >= 1e-3 else MICROSECONDS


def column_unit(unit: str, values: Iterable[float | None]) -> ShownUnit:
    """Return the unit for a column of `values`, which are in `unit`."""
    return time_unit(values) if unit == "s" else IN_TABLES.get(unit, ShownUnit(unit, 1))


def _rounded(value: float, digits: int) -> float:
    return float(f"{value:.{digits - 1}e}")
