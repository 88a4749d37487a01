"""How the upper end of an interval is written."""

from __future__ import annotations

import math

import pytest

from analysis.report.ends import upper_end
from records.formatting import format_seconds
from records.view import BEYOND_OBSERVED, Estimate


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        pytest.param(Estimate(0.3, 0.2, 0.4, 500), "400 ms", id="among the values observed"),
        pytest.param(Estimate(0.3, 0.2, math.inf, 500), "failed", id="among failed requests"),
        pytest.param(Estimate(0.3, 0.2, math.inf, 500, BEYOND_OBSERVED), "∞", id="beyond all that was observed"),
    ],
)
def test_an_upper_end_is_a_value_or_says_what_it_is(estimate: Estimate, text: str) -> None:
    assert upper_end(estimate, format_seconds) == text


def test_what_has_no_interval_has_no_end() -> None:
    with pytest.raises(ValueError, match="has no interval"):
        upper_end(Estimate(0.3, n=5, why="5 < 16"), format_seconds)
