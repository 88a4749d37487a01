"""Where values fall on a chart: the reach of an axis, its ticks, and the places of labels that must not overlap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

SHORT = 10  # times its lower end: a logarithmic axis that has few powers of ten
WIDTH, HEIGHT = 400, 230  # pixels of a chart's plane


@dataclass(frozen=True, slots=True)
class Scale:
    """A value axis that holds all values; logarithmic where they span more than a factor of twenty."""

    low: float
    high: float
    logarithmic: bool

    def pixel(self, value: float) -> float:
        return HEIGHT * (1 - (self._at(value) - self._at(self.low)) / (self._at(self.high) - self._at(self.low)))

    def value(self, pixel: float) -> float:
        at = self._at(self.low) + (1 - pixel / HEIGHT) * (self._at(self.high) - self._at(self.low))
        return float(10**at) if self.logarithmic else at

    def _at(self, value: float) -> float:
        return math.log10(value) if self.logarithmic else value

    @property
    def spec(self) -> dict[str, Any]:
        """In Vega-Lite."""
        return {"domain": [self.low, self.high], "type": "log" if self.logarithmic else "linear", "nice": False}

    def ticks(self, most: int = 7) -> list[float]:
        """1, 2 and 5 times powers of ten, thinned until they have room; even steps on a linear or a short axis."""
        if not self.logarithmic or self.high < SHORT * self.low:
            rough = (self.high - self.low) / (most - 1)
            power = 10.0 ** math.floor(math.log10(rough))
            step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough)
            return [step * k for k in range(math.ceil(self.low / step), math.floor(self.high / step + 1e-9) + 1)]
        exponents = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for mantissas in ((1, 2, 5), (1, 3), (1,)):
            ticks = [m * 10.0**e for e in exponents for m in mantissas if self.low <= m * 10.0**e <= self.high]
            if len(ticks) <= most:
                break
        return ticks[:: math.ceil(len(ticks) / most)]


def scale_of(values: Sequence[float]) -> Scale:
    largest, positive = max(values, default=1.0) or 1.0, [value for value in values if value > 0]
    if largest / min(positive, default=largest) > 20:
        return logarithmic(values)
    return Scale(0.0, largest * 1.08, False)


def logarithmic(values: Sequence[float]) -> Scale:
    """What is not above zero lies at the axis' end."""
    positive = [value for value in values if value > 0] or [1.0]
    return Scale(min(positive) / 1.25, max(positive) * 1.25, True)


def spread_apart(pixels: Sequence[float], gap: float, room: float) -> list[float]:
    """Ascending positions, moved as little as it takes for neighbours to stand `gap` apart, inside [0, room]."""
    placed: list[float] = []
    for pixel in pixels:
        placed.append(max(pixel, placed[-1] + gap) if placed else pixel)
    limit = max(room, gap * (len(placed) - 1))
    for index in reversed(range(len(placed))):
        placed[index] = min(placed[index], limit)
        limit = placed[index] - gap
    return placed
