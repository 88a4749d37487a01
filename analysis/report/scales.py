"""Where values fall on a chart: the size of its plane, and the reach of an axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

WIDTH, HEIGHT = 400, 230  # pixels of a chart's plane


@dataclass(frozen=True, slots=True)
class Scale:
    """A value axis that holds all values; logarithmic where they span more than a factor of twenty."""

    low: float
    high: float
    logarithmic: bool

    @property
    def spec(self) -> dict[str, Any]:
        """In Vega-Lite."""
        return {"domain": [self.low, self.high], "type": "log" if self.logarithmic else "linear", "nice": False}


def scale_of(values: Sequence[float]) -> Scale:
    largest, positive = max(values, default=1.0) or 1.0, [value for value in values if value > 0]
    if largest / min(positive, default=largest) > 20:
        return logarithmic(values)
    return Scale(0.0, largest * 1.08, False)


def logarithmic(values: Sequence[float]) -> Scale:
    """What is not above zero lies at the axis' end."""
    positive = [value for value in values if value > 0] or [1.0]
    return Scale(min(positive) / 1.25, max(positive) * 1.25, True)
