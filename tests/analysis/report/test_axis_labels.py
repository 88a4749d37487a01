"""What stands at a tick is its value, also where steps are two and a half."""

from __future__ import annotations

import re

import pytest

from analysis.report.charts.drawing import drawn, quantitative, rows_of, value_axis, zoom
from analysis.report.charts.scales import Scale
from analysis.units import PLAIN


@pytest.mark.parametrize("high", [1.08, 10.8, 13.0, 108.0, 1080.0, 3.3])
def test_every_tick_says_its_value(high: float) -> None:
    scale = Scale(0.0, high, False)
    y = quantitative("value", scale=scale.spec, axis=value_axis(scale, PLAIN, "value"))
    data = rows_of([{"value": 0.0}, {"value": high}])
    chart = drawn({"data": data, "mark": "line", "encoding": {"y": y}, "height": 300, "params": [zoom("y")]})
    labels = [float(text.replace(",", "")) for text in re.findall(r">([\d.,]+)</text>", chart.svg)]
    assert labels == pytest.approx(scale.ticks(6))
