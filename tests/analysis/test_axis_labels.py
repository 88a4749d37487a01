"""What stands at a tick is its value, also where steps are two and a half."""

from __future__ import annotations

import re

import altair as alt
import pytest

from analysis.report.charts.drawing import chart_of, svg_of, value_axis
from analysis.report.charts.scales import Scale
from analysis.units import PLAIN


@pytest.mark.parametrize("high", [1.08, 10.8, 13.0, 108.0, 1080.0, 3.3])
def test_every_tick_says_its_value(high: float) -> None:
    scale = Scale(0.0, high, False)
    y = alt.Y("value:Q", scale=scale.altair, axis=value_axis(scale, PLAIN))
    chart = chart_of([{"value": 0.0}, {"value": high}]).mark_line().encode(y=y).properties(height=300)
    labels = [float(text.replace(",", "")) for text in re.findall(r">([\d.,]+)</text>", svg_of(chart))]
    assert labels == pytest.approx(scale.ticks(6))
