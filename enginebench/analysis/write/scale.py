"""Axes of a chart: from values to pixels, the places of ticks, and labels that do not overlap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

FONT = 12  # pixels
LETTER = 0.6 * FONT  # mean width of a character
LINE = 15  # pixels from one line of text to the next
Kind = str  # `linear`, `log`, or `tail`: a share p at −log₁₀(1 − p), so that p90, p99 and p99.9 have equal distances


def width_of(text: str) -> float:
    return LETTER * len(text)


@dataclass(frozen=True, slots=True)
class Scale:
    """`low` is at the pixel `start` and `high` at `end`; values outside are drawn at the edge."""

    low: float
    high: float
    start: float
    end: float
    kind: Kind = "linear"

    def __call__(self, value: float) -> float:
        low, high = self._place(self.low), self._place(self.high)
        part = (self._place(value) - low) / (high - low) if high > low else 0.5
        return self.start + (self.end - self.start) * min(max(part, 0.0), 1.0)

    def _place(self, value: float) -> float:
        if self.kind == "log":
            return math.log10(max(value, 1e-12))
        return -math.log10(max(1 - value, 1e-9)) if self.kind == "tail" else value

    def ticks(self, count: int = 5) -> list[float]:
        if self.kind == "tail":
            return [share for share in (0.0, 0.5, 0.9, 0.99, 0.999, 0.9999) if self.low <= share <= self.high]
        return self._logarithmic() if self.kind == "log" else self._linear(count)

    def _linear(self, count: int) -> list[float]:
        span = self.high - self.low
        if span <= 0:
            return [self.low]
        rough = span / count
        size = 10.0 ** math.floor(math.log10(rough))
        step = next(factor * size for factor in (1, 2, 5, 10) if factor * size >= rough)
        first = math.ceil(self.low / step - 1e-9)
        return [k * step for k in range(first, math.floor(self.high / step + 1e-9) + 1)]

    def _logarithmic(self) -> list[float]:
        """Return 1, 2 and 5 times each power of ten or, if that makes more than nine ticks, only the powers."""
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        ticks = [factor * 10.0**power for power in decades for factor in (1, 2, 5)]
        ticks = [tick for tick in ticks if self.low <= tick * (1 + 1e-9) and tick <= self.high * (1 + 1e-9)]
        return ticks if len(ticks) <= 9 else [tick for tick in ticks if math.log10(tick) % 1 in {0.0}]


def scale_of(values: Sequence[float], start: float, end: float, kind: Kind = "linear", room: float = 1.06) -> Scale:
    """Make an axis from zero (logarithmic: from just below the smallest value) to just above the largest value."""
    finite = [value for value in values if math.isfinite(value)]
    if kind == "tail":
        return Scale(0.0, min(max(finite, default=0.99), 0.9999), start, end, kind)
    positive = [value for value in finite if value > 0]
    if kind == "log" and positive:
        return Scale(min(positive) / 1.2, max(positive) * 1.2, start, end, kind)
    return Scale(min(0.0, *finite, 0.0), (max(finite, default=0.0) or 1.0) * room, start, end)


def spread(positions: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move positions until they are at least `gap` apart, from `low` to `high`."""
    if not positions:
        return []
    gap = min(gap, (high - low) / max(len(positions) - 1, 1))
    order = sorted(range(len(positions)), key=positions.__getitem__)
    places = [min(max(positions[k], low), high) for k in order]
    for index in range(1, len(places)):
        places[index] = max(places[index], places[index - 1] + gap)
    places[-1] = min(places[-1], high)
    for index in range(len(places) - 2, -1, -1):
        places[index] = min(places[index], places[index + 1] - gap)
    spread_out = [0.0] * len(positions)
    for index, k in enumerate(order):
        spread_out[k] = places[index]
    return spread_out


@dataclass(frozen=True, slots=True)
class Box:
    left: float
    top: float
    right: float
    bottom: float

    def overlap(self, other: Box) -> float:
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.bottom, other.bottom) - max(self.top, other.top)
        return max(width, 0.0) * max(height, 0.0)


@dataclass(slots=True)
class Labels:
    """Places texts so that they do not cover each other or, if possible, points; `inside` is the plot."""

    inside: Box
    texts: list[Box] = field(default_factory=list)
    points: list[Box] = field(default_factory=list)

    def point(self, x: float, y: float, size: float = 5) -> None:
        self.points.append(Box(x - size, y - size, x + size, y + size))

    def place(self, text: str, anchors: Sequence[tuple[float, float]], needed: bool = False) -> Box | None:
        """Return the best box whose lower left corner is one of `anchors`. `None` if every box would cover another text
        or leave the plot, unless the label is `needed`."""
        boxes = [Box(x, y - FONT, x + width_of(text), y + 2) for x, y in anchors]
        costs = [self._cost(box) for box in boxes]
        best = min(range(len(boxes)), key=costs.__getitem__)
        if costs[best] >= FORBIDDEN and not needed:
            return None
        self.texts.append(boxes[best])
        return boxes[best]

    def _cost(self, box: Box) -> float:
        texts = sum(map(box.overlap, self.texts))
        outside = (box.right - box.left) * (box.bottom - box.top) - box.overlap(self.inside)
        return FORBIDDEN * (texts + outside > 1) + texts + outside + sum(map(box.overlap, self.points))


FORBIDDEN = 1e6
